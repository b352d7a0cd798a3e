#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::dead_code_test {
namespace {

TEST(DeadCodeTest, DropsWhatNoOutputNeeds) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  Add(graph, "Relu", {Add(graph, "Abs", {x})});
  const ValueId y = Add(graph, "Exp", {x});
  graph.AddConstant("unused", RandomTensor({4}, 1));
  graph.outputs = {y};
  const Graph after = After("dead_code", graph);
  EXPECT_EQ(after.nodes.size(), 1u);
  EXPECT_EQ(after.values.size(), 2u);
}

TEST(DeadCodeTest, KeepsUnusedInputs) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  graph.AddInput("unused", Type::Tensor(DataType::kF32, {2}));
  graph.outputs = {Add(graph, "Exp", {x})};
  EXPECT_EQ(After("dead_code", graph).inputs.size(), 2u);
}

}  // namespace
}  // namespace quench::passes::dead_code_test
