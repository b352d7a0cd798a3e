// Products by weights that stay integers in memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/byte_layers.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::weight_only_test {
namespace {

struct WeightOnly {
  std::string name;
  DataType dtype = DataType::kI8;
  int64_t m = 1, k = 96, n = 70;
  int64_t block = 0;   // of k; 0: a scale for each column
  bool zeros = false;  // zero points
  bool gemm = false;   // [n, k], with a bias
};

Tensor Integers(DataType dtype, const std::vector<int64_t>& dims, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor tensor = Tensor::Zeros(dtype, dims);
  const size_t bytes = tensor.bytes().size();
  for (size_t i = 0; i < bytes; ++i)
    tensor.mutable_bytes()[i] = static_cast<std::byte>(random() >> 8);
  return tensor;
}

Graph GraphOf(const WeightOnly& form) {
  Graph graph;
  graph.name = form.name;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {form.m, form.k}));
  const std::vector<int64_t> dims =
      form.gemm ? std::vector<int64_t>{form.n, form.k} : std::vector<int64_t>{form.k, form.n};
  const size_t k_axis = form.gemm ? 1 : 0;
  std::vector<int64_t> scale_dims = {form.n};
  std::map<std::string, Attribute> attributes = {{"axis", static_cast<int64_t>(1 - k_axis)}};
  if (form.block > 0) {
    scale_dims = dims;
    scale_dims[k_axis] = (form.k + form.block - 1) / form.block;
    attributes = {{"axis", static_cast<int64_t>(k_axis)}, {"block_size", form.block}};
  }
  Tensor scale = Values(scale_dims, 3);
  auto* scales = reinterpret_cast<float*>(scale.mutable_bytes());
  for (int64_t i = 0; i < scale.size(); ++i) scales[i] = 0.01F + 0.01F * scales[i] * scales[i];
  std::vector<ValueId> inputs = {graph.AddConstant("w", Integers(form.dtype, dims, 5)),
                                 graph.AddConstant("scale", scale)};
  if (form.zeros) inputs.push_back(graph.AddConstant("zero", Integers(form.dtype, scale_dims, 7)));
  const ValueId w = Node1(graph, "DequantizeLinear", inputs, attributes);
  ValueId y = quench::kNone;
  if (form.gemm) {
    y = Node1(graph, "Gemm", {x, w, graph.AddConstant("b", Values({form.n}, 9))},
              {{"transB", int64_t{1}}, {"alpha", 0.5}});
  } else {
    y = Node1(graph, "MatMul", {x, w});
  }
  graph.outputs = {Node1(graph, "Relu", {y})};
  Infer(graph);
  return graph;
}

std::vector<WeightOnly> Forms() {
  std::vector<WeightOnly> forms;
  for (const DataType dtype : {DataType::kI8, DataType::kU8, DataType::kI4, DataType::kU4}) {
    const std::string name(DataTypeName(dtype));
    forms.push_back({name, dtype});
    forms.push_back({name + "_blocks", dtype, 1, 96, 70, 32});
    forms.push_back({name + "_zeros", dtype, 3, 96, 70, 32, true});
    forms.push_back({name + "_rest", dtype, 2, 101, 70, 32, true});
    forms.push_back({name + "_odd", dtype, 5, 77, 64, 0, true});
    forms.push_back({name + "_small_blocks", dtype, 1, 90, 64, 6});
    forms.push_back({name + "_rows", dtype, 61, 64, 130, 16});
    forms.push_back({name + "_many_rows", dtype, 90, 77, 70, 16, true});
    forms.push_back({name + "_gemm", dtype, 7, 96, 50, 0, true, true});
    forms.push_back({name + "_gemm_blocks", dtype, 1, 100, 50, 32, true, true});
    forms.push_back({name + "_long_blocks", dtype, 1, 1024, 64, 512, true});
  }
  return forms;
}

class WeightOnlyTest : public ::testing::TestWithParam<WeightOnly> {};

TEST_P(WeightOnlyTest, ComputesWhatItsModelSays) {
  const Graph graph = GraphOf(GetParam());
  const std::vector<Tensor> inputs = {Values({GetParam().m, GetParam().k}, 11)};
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(graph, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ForEachBuild(graph, {1}, [&](const Compiled& compiled, int level, const std::string& build) {
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      EXPECT_LE(RelativeError(actual[0], (*expected)[0]), 1e-5) << build << ", " << run;
    });
    if (level < 3) return;
    ASSERT_EQ(compiled.report.kernels.size(), 1U) << build;
    const KernelReport& report = compiled.report.kernels[0];
    EXPECT_EQ(report.kernel, "matmul") << build;
    const std::string weights = fmt::format("i{} weights", DataTypeBits(GetParam().dtype));
    EXPECT_NE(report.reason.find(weights), std::string::npos) << build << ": " << report.reason;
  });
}

// Infinities and NaN come out where the operators have them: integers and zero points are not summed
// apart.
TEST_P(WeightOnlyTest, InputsThatAreNotFinite) {
  const Graph graph = GraphOf(GetParam());
  Tensor x = Values({GetParam().m, GetParam().k}, 11);
  auto* values = reinterpret_cast<float*>(x.mutable_bytes());
  values[1] = std::numeric_limits<float>::infinity();
  if (GetParam().m > 1) values[GetParam().k + 2] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Tensor> inputs = {x};
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(graph, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ForEachBuild(graph, {3}, [&](const Compiled& compiled, int, const std::string& build) {
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      for (int64_t i = 0; i < actual[0].size(); ++i) {
        const double value = actual[0].FloatAt(i), right = (*expected)[0].FloatAt(i);
        const bool same = std::isnan(right)   ? std::isnan(value)
                          : std::isinf(right) ? value == right
                                              : std::abs(value - right) <= 1e-4;
        ASSERT_TRUE(same) << build << ", " << run << ": " << i << " is " << value << ", not "
                          << right;
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Forms, WeightOnlyTest, ::testing::ValuesIn(Forms()),
                         [](const auto& test) { return test.param.name; });

ValueId RealMatrix(Graph& graph, DataType dtype, const std::vector<int64_t>& dims, int64_t axis) {
  Tensor scale = Values({dims[static_cast<size_t>(axis)]}, 3);
  auto* scales = reinterpret_cast<float*>(scale.mutable_bytes());
  for (int64_t i = 0; i < scale.size(); ++i) scales[i] = 0.01F + 0.01F * scales[i] * scales[i];
  return Node1(
      graph, "DequantizeLinear",
      {graph.AddConstant("w", Integers(dtype, dims, 5)), graph.AddConstant("scale", scale)},
      {{"axis", axis}});
}

int StoredProducts(const Compiled& compiled) {
  int count = 0;
  for (const KernelReport& report : compiled.report.kernels)
    count += report.reason.find("i4 weights") != std::string::npos ? 1 : 0;
  return count;
}

// A group whose tail no kernel takes is taken apart: its weights are constants still.
TEST(WeightOnlyTest, OtherTailsLeaveTheProductToItsKernel) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2, 8, 64}));
  const ValueId p = graph.AddInput("p", Type::Tensor(DataType::kF32, {8, 72}));
  const ValueId w = RealMatrix(graph, DataType::kI4, {64, 72}, 1);
  graph.outputs = {Node1(graph, "Add", {Node1(graph, "MatMul", {x, w}), p})};
  Infer(graph);
  const std::vector<Tensor> inputs = {Values({2, 8, 64}, 7), Values({8, 72}, 9)};
  for (const int level : {1, 2, 3}) ExpectSame(graph, inputs, level);
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(StoredProducts(*compiled), 1);
}

// Weights of recurrent layers are bytes in the library, and floats only where they are multiplied.
TEST(WeightOnlyTest, RecurrentLayersReadBytes) {
  constexpr int64_t kHidden = 32, kWidth = 96;
  for (const auto& [op, gates] :
       {std::pair<std::string, int64_t>{"LSTM", 4}, {"GRU", 3}, {"RNN", 1}}) {
    Graph graph;
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {6, 2, kWidth}));
    const ValueId w = RealMatrix(graph, DataType::kI8, {2, gates * kHidden, kWidth}, 1);
    const ValueId r = RealMatrix(graph, DataType::kI8, {2, gates * kHidden, kHidden}, 1);
    const ValueId b = graph.AddConstant("b", Values({2, 2 * gates * kHidden}, 9));
    graph.outputs = {Node1(graph, op, {x, w, r, b}, {{"direction", "bidirectional"}})};
    Infer(graph);
    const std::vector<Tensor> inputs = {Values({6, 2, kWidth}, 11)};
    const auto expected = ops::Evaluate(graph, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ForEachBuild(graph, {0, 1, 2, 3}, [&](const Compiled& compiled, int, const std::string& build) {
      ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
        EXPECT_LE(RelativeError(actual[0], (*expected)[0]), 1e-5) << op << build << ", " << run;
      });
      const int64_t bytes = 2 * gates * kHidden * (kWidth + kHidden);
      EXPECT_LT(compiled.report.weight_bytes, 3 * bytes) << op << build;  // of some for each CPU
    });
  }
}

// One table gives rows, and, transposed, the weights of a product.
TEST(WeightOnlyTest, TablesAreWeightsToo) {
  for (const DataType dtype : {DataType::kI4, DataType::kI8}) {
    Graph graph;
    const ValueId ids = graph.AddInput("ids", Type::Tensor(DataType::kI64, {3}));
    const ValueId table = RealMatrix(graph, dtype, {100, 64}, 0);
    const ValueId rows = Node1(graph, "Gather", {table, ids});
    const ValueId turned =
        Node1(graph, "Transpose", {table}, {{"perm", std::vector<int64_t>{1, 0}}});
    graph.outputs = {Node1(graph, "MatMul", {rows, turned})};
    Infer(graph);
    const std::vector<Tensor> inputs = {
        Tensor::Of(DataType::kI64, {3}, std::vector<int64_t>{99, 0, -7})};
    for (const int level : {1, 3}) ExpectSame(graph, inputs, level);
  }
}

// x: f32[2, 64] -> rows of a table added -> product by i4 weights of its own.
GraphPtr StoredBody(const Graph& outer, bool of_loop) {
  Graph body;
  body.symbols = outer.symbols;
  if (of_loop) {
    body.AddInput("i", Type::Tensor(DataType::kI64, {}));
    body.outputs = {body.AddInput("go", Type::Tensor(DataType::kBool, {}))};
  }
  const ValueId x = body.AddInput("x", Type::Tensor(DataType::kF32, {2, 64}));
  const ValueId ids =
      body.AddConstant("ids", Tensor::Of(DataType::kI64, {2}, std::vector<int64_t>{99, 3}));
  const ValueId rows = Node1(body, "Gather", {RealMatrix(body, DataType::kI8, {100, 64}, 0), ids});
  const ValueId sum = Node1(body, "Add", {x, rows});
  const ValueId y = Node1(body, "MatMul", {sum, RealMatrix(body, DataType::kI4, {64, 64}, 1)});
  body.outputs.push_back(of_loop ? Node1(body, "Tanh", {y}) : y);
  return std::make_shared<const Graph>(std::move(body));
}

// Bodies of If and Loop keep their weights as integers, once for all that have the same.
TEST(WeightOnlyTest, BodiesReadThemToo) {
  Graph graph;
  const ValueId which = graph.AddInput("which", Type::Tensor(DataType::kBool, {}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2, 64}));
  Graph plain;
  plain.symbols = graph.symbols;
  plain.outputs = {
      Node1(plain, "Neg", {plain.AddInput("x", Type::Tensor(DataType::kF32, {2, 64}))})};
  const NodeId chosen =
      graph.AddNode("If", "if", {which, x}, 1,
                    {{"then_branch", StoredBody(graph, false)},
                     {"else_branch", std::make_shared<const Graph>(std::move(plain))}});
  const ValueId times =
      graph.AddConstant("times", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{3}));
  const NodeId loop =
      graph.AddNode("Loop", "loop", {times, quench::kNone, graph.node(chosen).outputs[0]}, 1,
                    {{"body", StoredBody(graph, true)}});
  graph.outputs = {graph.node(loop).outputs[0]};
  Infer(graph);
  for (const uint8_t flag : {0, 1}) {
    const Tensor choice = Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{flag});
    for (const int level : {0, 1, 2, 3}) ExpectSame(graph, {choice, Values({2, 64}, 7)}, level);
  }
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(StoredProducts(*compiled), 2);
  EXPECT_LT(compiled->report.weight_bytes, 2 * (100 * 64 + 64 * 64 / 2));  // f32: 42,000
}

TEST(WeightOnlyTest, LeftSidesWithoutRows) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {64}));
  graph.outputs = {Node1(graph, "MatMul", {x, RealMatrix(graph, DataType::kU4, {64, 72}, 1)})};
  Infer(graph);
  ExpectSame(graph, {Values({64}, 7)}, 3);
}

// Four bits are how constants lie, not what a library can make: -8 is where i4 ends, not -128.
TEST(WeightOnlyTest, ResultsOfFourBitsAreRefused) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {16}));
  const ValueId scale = graph.AddConstant("s", Tensor::ScalarF32(1));
  const ValueId zero = graph.AddConstant("z", Tensor::Zeros(DataType::kI4, {}));
  const ValueId q = Node1(graph, "QuantizeLinear", {x, scale, zero});
  graph.outputs = {Node1(graph, "DequantizeLinear", {q, scale, zero})};
  Infer(graph);
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph);
  ASSERT_FALSE(compiled.ok());
  EXPECT_NE(compiled.status().ToString().find("i4"), std::string::npos) << compiled.status();
}

// The library holds the integers, not what they stand for.
TEST(WeightOnlyTest, WeightsAreAsSmallAsTheirBits) {
  const int64_t k = 256, n = 128;
  const auto bytes_of = [&](DataType dtype) {
    const absl::StatusOr<Compiled> compiled = CompileGraph(GraphOf({"size", dtype, 1, k, n, 64}));
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return compiled.ok() ? compiled->report.weight_bytes : 0;
  };
  const int64_t scales = k / 64 * n * 4;
  EXPECT_EQ(bytes_of(DataType::kI8), k * n + scales);
  EXPECT_EQ(bytes_of(DataType::kU4), k * n / 2 + scales);
}

}  // namespace
}  // namespace quench::codegen::weight_only_test
