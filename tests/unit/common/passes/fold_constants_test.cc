#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes {
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

}  // namespace
}  // namespace quench::passes
