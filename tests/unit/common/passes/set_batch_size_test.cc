#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::set_batch_size_test {
namespace {

absl::StatusOr<Graph> WithBatch(const Graph& graph, int64_t batch) {
  PassOptions options;
  options.batch = batch;
  return RunPass(*FindPass("set_batch_size"), graph, options, {});
}

TEST(SetBatchSizeTest, BindsTheSymbol) {
  Graph graph;
  const SymbolId n = graph.symbols->AddInput("n", {0, 0});
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {Dim::OfSymbol(n), 3}));
  graph.outputs = {Add(graph, "Relu", {x})};
  const auto after = WithBatch(graph, 8);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->value(after->outputs[0]).type.dims, (std::vector<Dim>{8, 3}));
}

TEST(SetBatchSizeTest, ReshapeTargetsFollow) {
  ValueId x;
  Graph graph = ImageGraph(&x, {1, 3, 2, 2});
  graph.outputs = {Add(graph, "Reshape", {x, graph.AddConstant("shape", Tensor::I64({1, -1}))})};
  const auto after = WithBatch(graph, 4);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->value(after->outputs[0]).type.dims, (std::vector<Dim>{4, 12}));
}

TEST(SetBatchSizeTest, NothingWithoutABatch) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  graph.outputs = {Add(graph, "Relu", {x})};
  EXPECT_EQ(After("set_batch_size", graph).value(x).type.dims[0], Dim(2));
}

TEST(SetBatchSizeTest, RefusesAModelWithoutABatchDim) {
  Graph graph;
  graph.outputs = {Add(graph, "Relu", {graph.AddInput("x", Type::Tensor(DataType::kF32, {}))})};
  EXPECT_EQ(WithBatch(graph, 2).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quench::passes::set_batch_size_test
