#include "common/ops/op.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::fold_constants_test {
namespace {

TEST(FoldConstantsTest, ComputesChainsOfConstants) {
  ValueId x;
  Graph graph = ImageGraph(&x, {4, 3});
  const ValueId w = graph.AddConstant("w", RandomTensor({5, 3}, 2));
  const ValueId t =
      Add(graph, "Transpose", {Add(graph, "Abs", {w})}, {{"perm", std::vector<int64_t>{1, 0}}});
  graph.outputs = {Add(graph, "MatMul", {x, t})};
  const Graph after = After("fold_constants", graph);
  ASSERT_EQ(after.nodes.size(), 1u);
  EXPECT_EQ(after.nodes[0].op, "MatMul");
}

TEST(FoldConstantsTest, KeepsANodeWhoseResultWouldBeHuge) {
  Graph graph;
  const ValueId value = graph.AddConstant("value", RandomTensor({1}, 3));
  const ValueId shape = graph.AddConstant("shape", Tensor::I64({1000, 1000}));
  graph.outputs = {Add(graph, "Expand", {value, shape})};
  EXPECT_EQ(After("fold_constants", graph).nodes.size(), 1u);
}

TEST(FoldConstantsTest, KeepsTheProducerOfAnOutput) {
  Graph graph;
  const ValueId c = graph.AddConstant("c", RandomTensor({3}, 4));
  graph.outputs = {Add(graph, "Exp", {c}, {}, "y")};
  const Graph after = After("fold_constants", graph);
  EXPECT_EQ(after.value(after.outputs[0]).name, "y");
}

// x: f32[4, 3]; a body that gives x @ Transpose(w) for a w that it captures as its last input.
GraphPtr BodyWithProduct(const Graph& outer, int others, bool gives_weights) {
  Graph body;
  body.symbols = outer.symbols;
  std::vector<ValueId> results;
  if (others > 1) {  // of a Loop: iteration, condition
    body.AddInput("i", Type::Tensor(DataType::kI64, {}));
    results.push_back(body.AddInput("go", Type::Tensor(DataType::kBool, {})));
  }
  const ValueId x = body.AddInput("x", Type::Tensor(DataType::kF32, {4, 3}));
  const ValueId w = body.AddInput("w", Type::Tensor(DataType::kF32, {3, 3}));
  const ValueId t = Add(body, "Transpose", {w}, {{"perm", std::vector<int64_t>{1, 0}}});
  results.push_back(Add(body, "MatMul", {x, t}));
  if (gives_weights) results.push_back(w);
  body.outputs = results;
  return std::make_shared<const Graph>(std::move(body));
}

// An If and a Loop that capture what is computed from a constant.
Graph Capturing(bool gives_weights) {
  ValueId x;
  Graph graph = ImageGraph(&x, {4, 3});
  const ValueId w = Add(graph, "Abs", {graph.AddConstant("w", RandomTensor({3, 3}, 2))}, {}, "w2");
  const ValueId yes =
      graph.AddConstant("yes", Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{1}));
  const ValueId sum = Add(graph, "ReduceSum", {x}, {{"keepdims", int64_t{0}}});
  const ValueId which =
      Add(graph, "Greater", {sum, graph.AddConstant("zero", Tensor::ScalarF32(0))});
  const GraphPtr branch = BodyWithProduct(graph, 1, gives_weights);
  const NodeId chosen = graph.AddNode("If", "if", {which, x, w}, gives_weights ? 2 : 1,
                                      {{"then_branch", branch}, {"else_branch", branch}});
  const ValueId times =
      graph.AddConstant("times", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{3}));
  const NodeId loop =
      graph.AddNode("Loop", "loop", {times, yes, graph.node(chosen).outputs[0], w}, 1,
                    {{"body", BodyWithProduct(graph, 2, false)}, {"q.captures", int64_t{1}}});
  graph.outputs = {graph.node(loop).outputs[0]};
  if (gives_weights) graph.outputs.push_back(graph.node(chosen).outputs[1]);
  EXPECT_TRUE(ops::InferGraph(graph).ok()) << ops::InferGraph(graph);
  return graph;
}

TEST(FoldConstantsTest, ConstantsThatBodiesCaptureAreTheirs) {
  const Graph after = After("fold_constants", Capturing(false));
  EXPECT_EQ(CountOps(after, "Abs"), 0);
  int bodies = 0;
  for (const Node& node : after.nodes) {
    for (const char* name : {"then_branch", "else_branch", "body"}) {
      const GraphPtr body = node.Body(name);
      if (body == nullptr) continue;
      ++bodies;
      ASSERT_EQ(body->nodes.size(), 1U) << name;
      EXPECT_NE(body->value(body->nodes[0].inputs[1]).constant, nullptr) << name;
      EXPECT_EQ(body->inputs.size(), node.op == "If" ? 1U : 3U);
      EXPECT_EQ(node.inputs.size(), node.op == "If" ? 2U : 3U);
      EXPECT_FALSE(node.attributes.contains("q.captures"));
    }
  }
  EXPECT_EQ(bodies, 3);
}

TEST(FoldConstantsTest, WhatABodyGivesBackIsAnInputStill) {
  const Graph after = After("fold_constants", Capturing(true));
  for (const Node& node : after.nodes) {
    const GraphPtr body = node.Body(node.op == "If" ? "then_branch" : "body");
    if (body == nullptr) continue;
    EXPECT_EQ(body->inputs.size(), node.op == "If" ? 2U : 3U);
  }
}

}  // namespace
}  // namespace quench::passes::fold_constants_test
