#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::rewrites_test {
namespace {

TEST(IdentitiesTest, RemovesOperationsThatChangeNothing) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  ValueId y = Add(graph, "Identity", {x});
  y = Add(graph, "Cast", {y}, {{"to", int64_t{1}}});
  y = Add(graph, "Reshape", {y, graph.AddConstant("shape", Tensor::I64({2, 3, 6, 6}))});
  y = Add(graph, "Transpose", {y}, {{"perm", std::vector<int64_t>{0, 1, 2, 3}}});
  y = Add(graph, "Mul", {y, graph.AddConstant("one", Tensor::ScalarF32(1))});
  y = Add(graph, "Add", {graph.AddConstant("zero", Tensor::ScalarF32(0)), y});
  graph.outputs = {Add(graph, "Relu", {y})};
  EXPECT_EQ(After("identities", graph).nodes.size(), 1u);
}

TEST(IdentitiesTest, KeepsWhatOnlyLooksLikeOne) {
  ValueId x;
  Graph graph = ImageGraph(&x, {3, 3});
  ValueId y = Add(graph, "Transpose", {x},
                  {{"perm", std::vector<int64_t>{1, 0}}});  // same type, other order
  y = Add(graph, "Sub", {graph.AddConstant("zero", Tensor::ScalarF32(0)), y});  // 0 - x
  const std::vector<ValueId> slice = {y, graph.AddConstant("starts", Tensor::I64({-1})),
                                      graph.AddConstant("ends", Tensor::I64({-100})),
                                      graph.AddConstant("axes", Tensor::I64({0})),
                                      graph.AddConstant("steps", Tensor::I64({-1}))};
  y = Add(graph, "Slice", slice);  // a reversal
  graph.outputs = {y};
  EXPECT_EQ(After("identities", graph).nodes.size(), 3u);
}

TEST(IdentitiesTest, AnInputThatIsAnOutputKeepsItsIdentity) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  graph.outputs = {Add(graph, "Identity", {x}, {}, "y")};
  const Graph after = After("identities", graph);
  EXPECT_EQ(after.nodes.size(), 1u);
  EXPECT_EQ(after.value(after.outputs[0]).name, "y");
}

TEST(CommonSubexpressionsTest, ComputesEqualThingsOnce) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  const ValueId a =
      Add(graph, "Mul", {Add(graph, "Exp", {x}), graph.AddConstant("c", RandomTensor({1}, 1))});
  const ValueId b =
      Add(graph, "Mul", {Add(graph, "Exp", {x}), graph.AddConstant("d", RandomTensor({1}, 1))});
  graph.outputs = {Add(graph, "Add", {a, b})};
  const Graph after = After("common_subexpressions", graph);
  EXPECT_EQ(CountOps(after, "Exp"), 1);
  EXPECT_EQ(CountOps(after, "Mul"), 1);
}

TEST(CommonSubexpressionsTest, AttributesTellNodesApart) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  const ValueId a = Add(graph, "LeakyRelu", {x}, {{"alpha", 0.1}});
  const ValueId b = Add(graph, "LeakyRelu", {x}, {{"alpha", 0.2}});
  graph.outputs = {Add(graph, "Add", {a, b})};
  EXPECT_EQ(CountOps(After("common_subexpressions", graph), "LeakyRelu"), 2);
}

TEST(ShapeArithmeticTest, KnownShapesBecomeConstants) {
  ValueId x;
  Graph graph = ImageGraph(&x);
  const ValueId batch = Add(
      graph, "Gather", {Add(graph, "Shape", {x}), graph.AddConstant("first", Tensor::I64({0}))});
  const ValueId target = Add(graph, "Concat", {batch, graph.AddConstant("rest", Tensor::I64({-1}))},
                             {{"axis", int64_t{0}}});
  graph.outputs = {Add(graph, "Reshape", {x, target})};
  const Graph after = After("shape_arithmetic", graph);
  EXPECT_EQ(after.nodes.size(), 1u);
}

TEST(ShapeArithmeticTest, SymbolicShapesBecomeOneNode) {
  ValueId x;
  Graph graph;
  const SymbolId n = graph.symbols->AddInput("n", {0, 0});
  x = graph.AddInput("x", Type::Tensor(DataType::kF32, {Dim::OfSymbol(n), 3, 4}));
  const ValueId batch = Add(
      graph, "Gather", {Add(graph, "Shape", {x}), graph.AddConstant("first", Tensor::I64({0}))});
  const ValueId target = Add(graph, "Concat", {batch, graph.AddConstant("rest", Tensor::I64({12}))},
                             {{"axis", int64_t{0}}});
  graph.outputs = {Add(graph, "Reshape", {x, target})};
  const Graph after = After("shape_arithmetic", graph);
  EXPECT_EQ(after.nodes.size(), 2u);
  EXPECT_EQ(CountOps(after, "q.dims"), 1);
}

// `$7` is symbol 7 of this table only: a module that was written would not be read again.
TEST(ShapeArithmeticTest, SizesWithoutATextOfTheirOwnStay) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}));
  Dim size = n;
  for (int64_t i = 2; !graph.symbols->IsAbbreviated(size.symbol()); ++i) {
    size = graph.symbols->Add(graph.symbols->FloorDiv(graph.symbols->Mul(size, i), 7), n);
    ASSERT_LT(i, 40);
  }
  const Dim twice = graph.symbols->FloorDiv(graph.symbols->Mul(size, 3), 5);
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {n, 3}));
  const ValueId y = graph.AddInput("y", Type::Tensor(DataType::kF32, {twice, 3}));
  const ValueId shape = Add(graph, "Shape", {y});
  graph.outputs = {Add(graph, "Expand", {Add(graph, "ReduceSum", {x}), shape})};
  const auto after = RunPass(*FindPass("shape_arithmetic"), graph, {}, {});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(CountOps(*after, "q.dims"), 0);
}

}  // namespace
}  // namespace quench::passes::rewrites_test
