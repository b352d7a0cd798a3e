// Types of If, Loop and Scan.
#include "tests/unit/common/ops/run_op.h"

namespace quench::ops::control_shape_test {
namespace {

// A body that `build` fills: inputs, nodes and outputs.
template <typename Build>
GraphPtr Body(const std::shared_ptr<SymbolTable>& symbols, Build build) {
  Graph body;
  body.symbols = symbols;
  build(body);
  return std::make_shared<const Graph>(std::move(body));
}

TEST(ControlShapes, BranchesThatDifferGiveARuntimeSize) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {1, 0}));
  const ValueId condition = graph.AddInput("c", Type::Tensor(DataType::kBool, {}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {n, 3}));
  const auto same = Body(graph.symbols, [](Graph& body) {
    const ValueId in = body.AddInput("a", {});
    body.outputs = body.node(body.AddNode("Relu", "r", {in})).outputs;
  });
  const auto twice = Body(graph.symbols, [](Graph& body) {
    const ValueId in = body.AddInput("a", {});
    body.outputs =
        body.node(body.AddNode("Concat", "r", {in, in}, 1, {{"axis", int64_t{0}}})).outputs;
  });
  const NodeId node =
      graph.AddNode("If", "if", {condition, x}, 1, {{"then_branch", same}, {"else_branch", twice}});
  graph.outputs = graph.node(node).outputs;
  ASSERT_TRUE(InferGraph(graph).ok()) << InferGraph(graph);
  const Type& type = graph.value(graph.outputs[0]).type;
  ASSERT_FALSE(type.dims[0].is_static());
  EXPECT_TRUE(graph.symbols->at(type.dims[0].symbol()).is_runtime());
  EXPECT_EQ(type.dims[1], Dim(3));
}

TEST(ControlShapes, LoopThatCannotStopHasAKnownTripCount) {
  Graph graph;
  const ValueId trips = graph.AddConstant("trips", I64({}, {5}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2}));
  const auto body = Body(graph.symbols, [](Graph& b) {
    b.AddInput("i", {});
    const ValueId go = b.AddInput("go", {});
    const ValueId v = b.AddInput("v", {});
    const ValueId next = b.node(b.AddNode("Relu", "r", {v})).outputs[0];
    const ValueId seen = b.node(b.AddNode("Abs", "a", {v})).outputs[0];
    b.outputs = {b.node(b.AddNode("Identity", "id", {go})).outputs[0], next, seen};
  });
  const NodeId node = graph.AddNode("Loop", "loop", {trips, kNone, x}, 2, {{"body", body}});
  graph.outputs = graph.node(node).outputs;
  ASSERT_TRUE(InferGraph(graph).ok()) << InferGraph(graph);
  EXPECT_EQ(graph.value(graph.outputs[0]).type, Type::Tensor(DataType::kF32, {2}));
  EXPECT_EQ(graph.value(graph.outputs[1]).type, Type::Tensor(DataType::kF32, {5, 2}));
}

TEST(ControlShapes, ScanStacksAlongItsAxis) {
  Graph graph;
  const ValueId state = graph.AddInput("s", Type::Tensor(DataType::kF32, {2}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2, 7}));
  const auto body = Body(graph.symbols, [](Graph& b) {
    const ValueId s = b.AddInput("s", {});
    const ValueId v = b.AddInput("v", {});
    const ValueId sum = b.node(b.AddNode("Add", "add", {s, v})).outputs[0];
    b.outputs = {sum, b.node(b.AddNode("Neg", "neg", {sum})).outputs[0]};
  });
  const Attributes attributes = {{"body", body},
                                 {"num_scan_inputs", int64_t{1}},
                                 {"scan_input_axes", std::vector<int64_t>{1}},
                                 {"scan_output_axes", std::vector<int64_t>{-1}}};
  const NodeId node = graph.AddNode("Scan", "scan", {state, x}, 2, attributes);
  graph.outputs = graph.node(node).outputs;
  ASSERT_TRUE(InferGraph(graph).ok()) << InferGraph(graph);
  EXPECT_EQ(graph.value(graph.outputs[0]).type, Type::Tensor(DataType::kF32, {2}));
  EXPECT_EQ(graph.value(graph.outputs[1]).type, Type::Tensor(DataType::kF32, {2, 7}));
}

}  // namespace
}  // namespace quench::ops::control_shape_test
