#include "common/ir/verify.h"
#include "common/passes/passes.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::fuse_groups_test {
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

// Groups of at most this many nodes, or of pointwise ones alone, are taken.
Graph Cut(const Graph& graph, size_t most) {
  return CutGroups(graph,
                   [&](const Graph&, const Node& node) {
                     const GraphPtr body = node.Body("body");
                     return body->nodes[0].op != "MatMul" || body->nodes.size() <= most;
                   })
      .value();
}

TEST(CutGroupsTest, GroupsEndBehindTheLongestPrefixThatIsTaken) {
  ValueId x;
  Graph graph = ImageGraph(&x, {4, 4});
  const ValueId product =
      Add(graph, "MatMul", {x, graph.AddConstant("w", RandomTensor({4, 4}, 5))});
  const ValueId two = graph.AddConstant("two", Tensor::ScalarF32(2));
  const ValueId scaled = Add(graph, "Mul", {product, two});
  const ValueId gated = Add(graph, "Mul", {scaled, Add(graph, "Sigmoid", {scaled})});
  graph.outputs = {Add(graph, "Neg", {Add(graph, "Exp", {gated})})};
  const Graph whole = After("fuse_groups", graph);
  ASSERT_EQ(whole.nodes.size(), 1u);
  const auto sizes = [](const Graph& cut) {
    std::vector<size_t> result;
    for (const Node& node : cut.nodes)
      result.push_back(node.op == "q.fused" ? BodyOf(node).nodes.size() : 1);
    return result;
  };
  EXPECT_EQ(sizes(Cut(whole, 6)), (std::vector<size_t>{6}));
  EXPECT_EQ(sizes(Cut(whole, 5)), (std::vector<size_t>{5, 1}));
  // Behind the Sigmoid the product before it is still wanted: a group has one result.
  EXPECT_EQ(sizes(Cut(whole, 3)), (std::vector<size_t>{2, 4}));
  EXPECT_EQ(sizes(Cut(whole, 1)), (std::vector<size_t>{1, 5}));
  for (const size_t most : {5, 3, 1}) {
    const Graph cut = Cut(whole, most);
    EXPECT_TRUE(VerifyGraph(cut).ok()) << VerifyGraph(cut);
    EXPECT_LE(Difference(whole, cut), 1e-5);
  }
}

}  // namespace
}  // namespace quench::passes::fuse_groups_test
