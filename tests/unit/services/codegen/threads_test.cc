// Parts of kernels' tasks: shares of threads, what all of these read, and bands that go through several
// kernels.
#include "common/ops/evaluate.h"
#include "services/codegen/plan/program_text.h"
#include "services/codegen/plan/variants.h"
#include "tests/support/matchers.h"
#include "tests/support/sample.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::threads_test {
namespace {

using ::quench::testing::HasSubstr;

ValueId Convolution(Graph& graph, ValueId x, int64_t in, int64_t out, int64_t stride) {
  const ValueId w = graph.AddConstant("w", Values({out, in, 3, 3}, static_cast<uint64_t>(out)));
  return Node1(graph, "Conv", {x, w},
               {{"kernel_shape", std::vector<int64_t>{3, 3}},
                {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                {"strides", std::vector<int64_t>{stride, stride}}});
}

// Two convolutions with more weights than pixels: one copies images with their borders, one transforms
// patches of them.
Graph TwoLayers(Dim batch, SymbolTable* symbols = nullptr) {
  Graph graph;
  if (symbols != nullptr) *graph.symbols = *symbols;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {batch, 48, 12, 14}));
  const ValueId half = Convolution(graph, x, 48, 200, 2);
  graph.outputs = {Convolution(graph, half, 200, 136, 1)};
  Infer(graph);
  return graph;
}

TEST(ThreadsTest, CopiesAreMadeOnceAndPatchesByEachThread) {
  CompileOptions options;
  options.target = "x86-64-v3";
  const std::string program = PlanText(TwoLayers(2), options, PlanStage::kProgram).value();
  // 2 images of 13 rows under strides of 2.
  EXPECT_THAT(program, HasSubstr("call conv_prepare(b"));
  EXPECT_THAT(program, HasSubstr(", 26 tasks"));
  EXPECT_THAT(program, HasSubstr("call winograd(b"));
  EXPECT_THAT(program, HasSubstr(" tasks by thread"));
}

// The same bits on any number of threads.
void ExpectSameOnThreads(
    const Graph& graph, const std::vector<Tensor>& inputs, const std::vector<Tensor>& expected,
    const std::string& target,
    const std::function<void(const CompileReport&)>& check = [](const CompileReport&) {}) {
  CompileOptions options;
  options.target = target;
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  check(compiled->report);
  const std::vector<Tensor> alone = *(*Artifact::Open(compiled->library()))->Run(inputs);
  EXPECT_LE(RelativeError(alone[0], expected[0]), 1e-4);
  for (const int threads : {2, 3, 7}) {
    const auto artifact = Artifact::Open(compiled->library(), threads);
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    for (int run = 0; run < 3; ++run) {
      const std::vector<Tensor> together = *(*artifact)->Run(inputs);
      ASSERT_EQ(together[0].bytes().size(), alone[0].bytes().size());
      EXPECT_TRUE(std::ranges::equal(together[0].bytes(), alone[0].bytes())) << threads;
    }
  }
}

TEST(ThreadsTest, GiveTheSameBitsInAnyNumber) {
  const Graph graph = TwoLayers(2);
  const std::vector<Tensor> inputs = *RandomInputs(InputsOf(graph), 3);
  ExpectSameOnThreads(graph, inputs, *ops::Evaluate(graph, inputs), "host");
}

TEST(ThreadsTest, ShareImagesOfASymbolicBatch) {
  SymbolTable symbols;
  const SymbolId batch = symbols.AddInput("batch", {0, 0}, {1, 8});
  const Graph graph = TwoLayers(Dim::OfSymbol(batch), &symbols);
  const std::vector<Tensor> inputs = *RandomInputs(InputsOf(graph), 3, {{"batch", 5}});
  ExpectSameOnThreads(graph, inputs, *ops::Evaluate(graph, inputs), "host");
}

// A pointwise convolution to many channels, a depthwise one, and one back, whose result is added to the
// input if it has its size.
Graph InvertedResidual(int64_t batch, int64_t stride, int64_t dilation) {
  constexpr int64_t kFew = 8, kMany = 112, kSize = 60;
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {batch, kFew, kSize, kSize}));
  const auto weights = [&](std::vector<int64_t> dims, uint64_t seed) {
    return graph.AddConstant("w", Values(std::move(dims), seed));
  };
  const std::vector<int64_t> one = {1, 1}, three = {3, 3};
  const ValueId tame = Node1(graph, "Softmax", {x}, {{"axis", int64_t{1}}});
  const ValueId wide = Node1(
      graph, "Relu",
      {Node1(graph, "Conv", {tame, weights({kMany, kFew, 1, 1}, 1)}, {{"kernel_shape", one}})});
  const ValueId deep = Node1(graph, "Conv", {wide, weights({kMany, 1, 3, 3}, 2)},
                             {{"kernel_shape", three},
                              {"group", kMany},
                              {"pads", std::vector<int64_t>(4, dilation)},
                              {"strides", std::vector<int64_t>{stride, stride}},
                              {"dilations", std::vector<int64_t>{dilation, dilation}}});
  ValueId back =
      Node1(graph, "Conv", {deep, weights({kFew, kMany, 1, 1}, 3)}, {{"kernel_shape", one}});
  if (stride == 1) back = Node1(graph, "Add", {back, tame});
  graph.outputs = {Node1(graph, "Softmax", {back}, {{"axis", int64_t{1}}})};
  Infer(graph);
  return graph;
}

// Nodes of kernels that run in bands.
std::vector<std::string> InBands(const CompileReport& report) {
  std::vector<std::string> nodes;
  for (const KernelReport& kernel : report.kernels) {
    if (kernel.reason.find(", in bands") != std::string::npos) nodes.push_back(kernel.kernel);
  }
  return nodes;
}

TEST(ThreadsTest, ADepthwiseConvolutionReadsRowsThatHaveJustBeenMade) {
  CompileOptions options;
  options.target = "x86-64-v3";
  const Graph graph = InvertedResidual(1, 1, 1);
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const std::vector<std::string> kernels = InBands(compiled->report);
  ASSERT_GE(kernels.size(), 2u);
  EXPECT_EQ(kernels[0], "conv");
  EXPECT_EQ(kernels[1], "depthwise");
  const std::string program = PlanText(graph, options, PlanStage::kMemory).value();
  EXPECT_THAT(program, HasSubstr("bands\nof\n"));
  EXPECT_THAT(program, HasSubstr("on one thread tasks "));
  options.opt_level = 2;
  EXPECT_EQ(PlanText(graph, options, PlanStage::kMemory).value().find("bands"), std::string::npos);
}

TEST(ThreadsTest, BandsGiveWhatTheirKernelsGive) {
  for (const auto& [batch, stride, dilation] :
       {std::tuple(1, 1, 1), {2, 1, 2}, {3, 2, 1}, {1, 3, 1}}) {
    SCOPED_TRACE(fmt::format("batch {}, stride {}, taps apart by {}", batch, stride, dilation));
    const Graph graph = InvertedResidual(batch, stride, dilation);
    const std::vector<Tensor> inputs = *RandomInputs(InputsOf(graph), 5);
    const std::vector<Tensor> expected = *ops::Evaluate(graph, inputs);
    for (const std::string& target : testing::Sample(RunnableTargets())) {
      SCOPED_TRACE(target);
      ExpectSameOnThreads(graph, inputs, expected, target, [&](const CompileReport& report) {
        EXPECT_GE(InBands(report).size(), target == "x86-64-v3" ? 2u : 0u);
      });
    }
  }
}

TEST(ThreadsTest, BandsNeedLittleMoreMemory) {
  const Graph graph = InvertedResidual(1, 1, 1);
  CompileOptions options;
  options.target = "x86-64-v3";
  const absl::StatusOr<Compiled> bands = CompileGraph(graph, options);
  options.opt_level = 2;
  const absl::StatusOr<Compiled> none = CompileGraph(graph, options);
  ASSERT_TRUE(bands.ok() && none.ok());
  EXPECT_LE(static_cast<double>(bands->report.arena_bytes),
            1.15 * static_cast<double>(none->report.arena_bytes));
}

// 64 bits are divided without a library.
TEST(ThreadsTest, SharesAreMadeOnCpusOf32Bits) {
  for (const char* target : {"armv7", "i686"}) {
    CompileOptions options;
    options.target = target;
    const absl::StatusOr<Compiled> compiled = CompileGraph(TwoLayers(2), options);
    EXPECT_TRUE(compiled.ok()) << target << ": " << compiled.status();
    EXPECT_THAT(PlanText(TwoLayers(2), options, PlanStage::kProgram).value(),
                HasSubstr(" tasks by thread"));
  }
}

}  // namespace
}  // namespace quench::codegen::threads_test
