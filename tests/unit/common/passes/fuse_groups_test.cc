#include "common/passes/passes.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes {
namespace {

const Graph& BodyOf(const Node& node) { return *std::get<GraphPtr>(node.attributes.at("body")); }

TEST(FuseGroupsTest, ConvTakesItsEpilogueWithDiamonds) {
  ValueId x;
  Graph graph = ImageGraph(&x, {1, 4, 6, 6});
  const ValueId conv =
      Add(graph, "Conv", {x, graph.AddConstant("w", RandomTensor({4, 4, 1, 1}, 5))});
  const ValueId silu = Add(graph, "Mul", {conv, Add(graph, "Sigmoid", {conv})});
  graph.outputs = {Add(graph, "Relu", {Add(graph, "Add", {silu, x})})};
  const Graph after = After("fuse_groups", graph);
  ASSERT_EQ(after.nodes.size(), 1u);
  EXPECT_EQ(after.nodes[0].op, "q.fused");
  EXPECT_EQ(BodyOf(after.nodes[0]).nodes.size(), 5u);
  EXPECT_EQ(BodyOf(after.nodes[0]).nodes[0].op, "Conv");
}

TEST(FuseGroupsTest, AValueThatEscapesEndsTheGroup) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  const ValueId a = Add(graph, "Exp", {Add(graph, "Abs", {x})});
  const ValueId b = Add(graph, "Neg", {Add(graph, "Sin", {a})});
  graph.outputs = {a, b};
  const Graph after = After("fuse_groups", graph);
  EXPECT_EQ(after.nodes.size(), 2u);
}

TEST(FuseGroupsTest, NoCycleThroughAnOutsideNode) {
  ValueId x;
  Graph graph = ImageGraph(&x, {4, 4});
  const ValueId w = graph.AddConstant("w", RandomTensor({4, 4}, 5));
  const ValueId first = Add(graph, "MatMul", {x, w});
  const ValueId relu = Add(graph, "Relu", {first});
  // Not pointwise: depends on the group, feeds what follows.
  const ValueId soft = Add(graph, "Softmax", {relu});
  graph.outputs = {Add(graph, "Add", {relu, soft})};
  const Graph after = After("fuse_groups", graph);
  EXPECT_EQ(after.nodes.size(), 3u);
}

TEST(FuseGroupsTest, ABroadcastThatGrowsStaysOutside) {
  ValueId x;
  Graph graph = ImageGraph(&x, {1, 4});
  const ValueId y = Add(graph, "Relu", {x});
  graph.outputs = {Add(graph, "Add", {y, graph.AddConstant("c", RandomTensor({3, 4}, 1))})};
  EXPECT_EQ(CountOps(After("fuse_groups", graph), "q.fused"), 0);
}

TEST(FuseGroupsTest, NumbersBecomePartOfTheBody) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  const ValueId two = graph.AddConstant("two", Tensor::ScalarF32(2));
  const ValueId channel = graph.AddConstant("k", RandomTensor({3, 1, 1}, 1));
  const ValueId a = Add(graph, "Mul", {Add(graph, "Pow", {x, two}), channel});
  const ValueId soft = Add(graph, "Softmax", {a});
  graph.outputs = {Add(graph, "Relu", {Add(graph, "Mul", {soft, two})})};
  const Graph fused = After("fuse_groups", graph);
  ASSERT_EQ(fused.nodes.size(), 3u);
  EXPECT_EQ(fused.nodes[0].inputs.size(), 2u);  // x and k
  EXPECT_EQ(fused.nodes[2].inputs.size(), 1u);
  const auto inlined = InlineGroups(fused, [](const Node&) { return true; });
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  EXPECT_EQ(Difference(graph, *inlined), 0);
}

TEST(FuseGroupsTest, InliningGivesTheNodesBack) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  graph.outputs = {Add(graph, "Exp", {Add(graph, "Relu", {Add(graph, "Abs", {x})})}, {}, "y")};
  const Graph fused = After("fuse_groups", graph);
  ASSERT_EQ(fused.nodes.size(), 1u);
  const auto inlined = InlineGroups(fused, [](const Node&) { return true; });
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  EXPECT_EQ(inlined->nodes.size(), 3u);
  EXPECT_EQ(inlined->value(inlined->outputs[0]).name, "y");
  EXPECT_EQ(Difference(graph, *inlined), 0);
}

}  // namespace
}  // namespace quench::passes
