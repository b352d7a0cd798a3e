// The price of Winograd's minimal filtering: bytes of weights and rounding.
#include <algorithm>

#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::winograd_test {
namespace {

constexpr int64_t kSmall = 32, kLarge = 128;

ValueId Convolution(Graph& graph, ValueId x, int64_t in, int64_t out, int64_t stride) {
  const ValueId w = graph.AddConstant("w", Values({out, in, 3, 3}, static_cast<uint64_t>(out)));
  return Node1(graph, "Conv", {x, w},
               {{"kernel_shape", std::vector<int64_t>{3, 3}},
                {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                {"strides", std::vector<int64_t>{stride, stride}}});
}

// Many pixels with few weights, then, behind a stride, few pixels with many.
Graph TwoLayers() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, kSmall, 48, 48}));
  const ValueId first = Convolution(graph, x, kSmall, kSmall, 1);
  const ValueId second = Convolution(graph, first, kSmall, kLarge, 4);
  graph.outputs = {Convolution(graph, second, kLarge, kLarge, 1)};
  Infer(graph);
  return graph;
}

int64_t WeightsOfTwoLayers() {
  return 4 * 9 * (kSmall * kSmall + kSmall * kLarge + kLarge * kLarge);
}

int64_t Winograds(const CompileReport& report) {
  return std::count_if(report.kernels.begin(), report.kernels.end(),
                       [](const KernelReport& kernel) { return kernel.kernel == "winograd"; });
}

// Those whose weights the library has a copy of.
int64_t Copies(const CompileReport& report) {
  return std::count_if(
      report.kernels.begin(), report.kernels.end(), [](const KernelReport& kernel) {
        return kernel.kernel == "winograd" && kernel.reason.find("run time") == std::string::npos;
      });
}

TEST(WinogradTest, CopiesOfWeightsStayBelowTheLimit) {
  const Graph graph = TwoLayers();
  const std::vector<Tensor> inputs = *RandomInputs(InputsOf(graph), 3);
  const std::vector<Tensor> expected = *ops::Evaluate(graph, inputs);
  int64_t before = 0;
  for (const auto& [max_size, layers] : {std::pair(1.0, 0), {1.35, 1}, {8.0, 2}}) {
    SCOPED_TRACE(max_size);
    CompileOptions options;
    options.target = "x86-64-v2";  // which copies pay depends on the CPU's costs
    options.max_size = max_size;
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(Copies(compiled->report), layers);
    constexpr int64_t kAlignment = 4096;
    EXPECT_LE(
        compiled->report.weight_bytes,
        static_cast<int64_t>(max_size * static_cast<double>(WeightsOfTwoLayers())) + kAlignment);
    EXPECT_GT(compiled->report.weight_bytes, before);
    before = compiled->report.weight_bytes;
    const std::vector<Tensor> actual = *(*Artifact::Open(compiled->library()))->Run(inputs);
    EXPECT_LE(RelativeError(actual[0], expected[0]), 1e-4);
  }
}

TEST(WinogradTest, IsLeftOutWhereItIsNotWanted) {
  CompileOptions options;
  options.winograd = false;
  options.max_size = 8;
  const absl::StatusOr<Compiled> without = CompileGraph(TwoLayers(), options);
  options.winograd = true;
  const absl::StatusOr<Compiled> with = CompileGraph(TwoLayers(), options);
  ASSERT_TRUE(without.ok() && with.ok()) << without.status() << with.status();
  EXPECT_EQ(Winograds(without->report), 0);
  EXPECT_NE(without->report.uuid, with->report.uuid);
}

TEST(WinogradTest, LimitsBelowOneAreRefused) {
  for (const double max_size : {0.0, 0.99, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    CompileOptions options;
    options.max_size = max_size;
    const absl::Status status = CompileGraph(TwoLayers(), options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("max size"), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace quench::codegen::winograd_test
