#include "common/ops/op.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::sink_transposes_test {
namespace {

using Order = std::vector<int64_t>;
const Order kLast = {0, 2, 3, 1}, kFirst = {0, 3, 1, 2};

ValueId Transpose(Graph& graph, ValueId x, const Order& order) {
  return Add(graph, "Transpose", {x}, {{"perm", order}});
}

Graph ImageOf(ValueId* x, std::vector<Dim> dims) {
  Graph graph;
  *x = graph.AddInput("x", Type::Tensor(DataType::kF32, std::move(dims)));
  return graph;
}

TEST(SinkTransposesTest, ScalesOfChannelsGoAlong) {
  ValueId x;
  Graph graph = ImageOf(&x, {1, 2, 3, 4});
  const ValueId step =
      graph.AddConstant("step", Tensor::Of(DataType::kF32, {2}, std::vector<float>{0.125f, 0.25f}));
  const ValueId zero =
      graph.AddConstant("zero", Tensor::Of(DataType::kI8, {2}, std::vector<int8_t>{3, -3}));
  const Attribute axis = int64_t{3};
  ValueId y =
      Add(graph, "QuantizeLinear", {Transpose(graph, x, kLast), step, zero}, {{"axis", axis}});
  y = Add(graph, "DequantizeLinear", {y, step, zero}, {{"axis", axis}});
  graph.outputs = {Transpose(graph, y, kFirst)};
  const Graph after = After("sink_transposes", graph);
  EXPECT_EQ(CountOps(after, "Transpose"), 0);
  EXPECT_EQ(after.nodes[0].Int("axis", -1), 1);
}

// Both sides of a sum come the same way; a third reader of one keeps its Transpose.
TEST(SinkTransposesTest, BranchesMeetInOneOrder) {
  ValueId x;
  Graph graph = ImageOf(&x, {1, 2, 3, 4});
  const ValueId a = Transpose(graph, x, kLast);
  const ValueId b = Add(graph, "Sigmoid", {Transpose(graph, Add(graph, "Relu", {x}), kLast)});
  const ValueId sum = Add(graph, "Mul", {a, b});
  graph.outputs = {Transpose(graph, sum, kFirst), Add(graph, "Neg", {a})};
  const Graph after = After("sink_transposes", graph);
  EXPECT_EQ(CountOps(after, "Transpose"), 1);
}

TEST(SinkTransposesTest, PartsOfASplitGoBackEach) {
  ValueId x;
  Graph graph = ImageOf(&x, {1, 4, 3, 2});
  const NodeId split = graph.AddNode("Split", "split", {Transpose(graph, x, kLast)}, 2,
                                     {{"axis", int64_t{3}}, {"num_outputs", int64_t{2}}});
  ASSERT_TRUE(ops::InferNode(graph, graph.node(split)).ok());
  const std::vector<ValueId> parts = graph.node(split).outputs;
  graph.outputs = {Transpose(graph, parts[0], kFirst), Transpose(graph, parts[1], kFirst)};
  EXPECT_EQ(CountOps(After("sink_transposes", graph), "Transpose"), 0);
}

TEST(SinkTransposesTest, AxesOfOneElementNeedNoTranspose) {
  ValueId x;
  Graph graph = ImageOf(&x, {1, 8, 1, 1});
  const ValueId y = Add(graph, "Relu", {Transpose(graph, x, kLast)});
  graph.outputs = {Transpose(graph, Add(graph, "Neg", {y}), {0, 3, 2, 1})};
  EXPECT_EQ(CountOps(After("sink_transposes", graph), "Transpose"), 0);
}

// Attention moves heads between products: nothing cancels, so nothing moves.
TEST(SinkTransposesTest, WithoutAGainTheGraphStaysAsItWas) {
  ValueId x;
  Graph graph = ImageOf(&x, {1, 5, 2, 3});
  const ValueId q = Transpose(graph, x, {0, 2, 1, 3}), k = Transpose(graph, x, {0, 2, 3, 1});
  const ValueId scaled = Add(graph, "Mul", {q, graph.AddConstant("half", Tensor::ScalarF32(0.5f))});
  graph.outputs = {Add(graph, "MatMul", {scaled, k})};
  const Graph after = After("sink_transposes", graph);
  EXPECT_EQ(CountOps(after, "Transpose"), 2);
  EXPECT_EQ(after.nodes.size(), graph.nodes.size());
  EXPECT_EQ(after.nodes[0].op, "Transpose");
}

}  // namespace
}  // namespace quench::passes::sink_transposes_test
