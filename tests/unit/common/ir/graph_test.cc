#include "common/ir/graph.h"

#include <gtest/gtest.h>

#include "common/base/status.h"

namespace quench::graph_test {
namespace {

Type F32(std::vector<Dim> dims) { return Type::Tensor(DataType::kF32, std::move(dims)); }

// x -> Relu -> Neg -> y
struct Chain {
  Graph g;
  ValueId x, relu, neg;
  Chain() {
    x = g.AddInput("x", F32({4}));
    relu = g.node(g.AddNode("Relu", "relu", {x})).outputs[0];
    neg = g.node(g.AddNode("Neg", "y", {relu})).outputs[0];
    g.outputs = {neg};
  }
};

TEST(GraphTest, NamesAreMadeUnique) {
  Graph g;
  EXPECT_EQ(g.value(g.AddValue("a")).name, "a");
  EXPECT_EQ(g.value(g.AddValue("a")).name, "a_1");
  EXPECT_EQ(g.value(g.AddValue("a")).name, "a_2");
  EXPECT_EQ(g.value(g.AddValue("a_1")).name, "a_1_1");
  EXPECT_EQ(g.value(g.AddValue("")).name, "v");
  const NodeId first = g.AddNode("Relu", "r", {}, 2);
  const NodeId second = g.AddNode("Relu", "r", {}, 2);
  EXPECT_EQ(g.node(first).name, "r");
  EXPECT_EQ(g.node(second).name, "r_1");
  EXPECT_EQ(g.value(g.node(second).outputs[1]).name, "r_1.1");
  EXPECT_EQ(g.node(g.AddNode("Relu", "", {})).name, "Relu");
  EXPECT_EQ(g.FindValue("a_2"), ValueId{2});
  EXPECT_EQ(g.FindValue("b"), std::nullopt);
}

TEST(GraphTest, ConstantsCarryTheirType) {
  Graph g;
  const ValueId c = g.AddConstant("c", Tensor::I64({1, 2, 3}));
  EXPECT_EQ(g.value(c).type, Type::Tensor(DataType::kI64, {3}));
  EXPECT_EQ(g.value(c).constant->tensor.ToInts(), (std::vector<int64_t>{1, 2, 3}));
}

TEST(GraphTest, ReplaceUsesKeepsOutputNames) {
  Chain c;
  const ValueId abs = c.g.node(c.g.AddNode("Abs", "abs", {c.x})).outputs[0];
  c.g.ReplaceUses(c.neg, abs);
  EXPECT_EQ(c.g.outputs, (std::vector<ValueId>{abs}));
  EXPECT_EQ(c.g.value(abs).name, "y");
  EXPECT_EQ(c.g.value(c.neg).name, "abs");
}

TEST(GraphTest, ReplaceUsesLeavesAnOutputThatCannotMove) {
  Chain c;
  c.g.ReplaceUses(c.neg, c.x);
  EXPECT_EQ(c.g.outputs, (std::vector<ValueId>{c.neg}));
  EXPECT_EQ(c.g.value(c.x).name, "x");
  c.g.ReplaceUses(c.relu, c.x);
  EXPECT_EQ(c.g.node(1).inputs, (std::vector<ValueId>{c.x}));
}

TEST(GraphTest, CompactDropsDeadCodeAndSorts) {
  Chain c;
  c.g.AddNode("Abs", "dead", {c.relu});
  c.g.AddConstant("unused", Tensor::I64({1}));
  std::swap(c.g.nodes[0], c.g.nodes[1]);
  for (NodeId id : {0, 1}) c.g.value(c.g.node(id).outputs[0]).producer = id;
  c.g.AddInput("idle", F32({1}));
  EXPECT_EQ(c.g.Compact(), 1);
  ASSERT_EQ(c.g.nodes.size(), 2u);
  EXPECT_EQ(c.g.nodes[0].op, "Relu");
  EXPECT_EQ(c.g.nodes[1].op, "Neg");
  EXPECT_EQ(c.g.values.size(), 4u);
  EXPECT_EQ(c.g.inputs.size(), 2u);
  for (NodeId id : {0, 1}) EXPECT_EQ(c.g.value(c.g.node(id).outputs[0]).producer, id);
  EXPECT_EQ(c.g.value(c.g.outputs[0]).name, "y");
  EXPECT_EQ(c.g.Compact(), 0);
}

TEST(GraphDeathTest, CompactRefusesCycles) {
  Chain c;
  c.g.node(0).inputs = {c.neg};
  EXPECT_DEATH(c.g.Compact(), "order.size");
}

TEST(GraphTest, UseCounts) {
  Chain c;
  c.g.AddNode("Add", "sum", {c.relu, c.relu, kNone});
  const std::vector<int> counts = c.g.UseCounts();
  EXPECT_EQ(counts[static_cast<size_t>(c.x)], 1);
  EXPECT_EQ(counts[static_cast<size_t>(c.relu)], 3);
  EXPECT_EQ(counts[static_cast<size_t>(c.neg)], 1);
}

TEST(GraphTest, AttributesHaveFallbacks) {
  Node node;
  node.attributes = {
      {"i", int64_t{3}}, {"f", 1.5}, {"s", std::string("x")}, {"is", std::vector<int64_t>{1}}};
  EXPECT_EQ(node.Int("i", 0), 3);
  EXPECT_EQ(node.Int("f", 7), 7);
  EXPECT_EQ(node.Float("f", 0), 1.5);
  EXPECT_EQ(node.String("s", ""), "x");
  EXPECT_EQ(node.Ints("is"), (std::vector<int64_t>{1}));
  EXPECT_TRUE(node.Floats("none").empty());
  EXPECT_EQ(node.Body("none"), nullptr);
}

class BindSymbolsTest : public ::testing::Test {
 protected:
  BindSymbolsTest() {
    const Dim n = Dim::OfSymbol(g.symbols->AddInput("n", {0, 0}, {2, 64}, 2));
    const Dim m = Dim::OfSymbol(g.symbols->AddInput("m", {0, 1}));
    const ValueId x = g.AddInput("x", F32({n, m}));
    Graph body;
    body.symbols = g.symbols;
    body.AddInput("b", F32({g.symbols->Mul(n, m)}));
    body.outputs = {0};
    const NodeId node = g.AddNode("If", "if", {x}, 1,
                                  {{"then_branch", std::make_shared<const Graph>(body)},
                                   {"type", F32({g.symbols->Add(n, 1)})}});
    g.outputs = g.node(node).outputs;
    g.value(g.outputs[0]).type = F32({g.symbols->FloorDiv(n, 2)});
    g.value(g.outputs[0]).elements = std::vector<Dim>{n, m};
  }
  Graph g;
};

TEST_F(BindSymbolsTest, FoldsEverywhere) {
  const auto bound = BindSymbols(g, {{"n", 8}});
  ASSERT_TRUE(bound.ok()) << bound.status();
  const Value& out = bound->value(bound->outputs[0]);
  EXPECT_EQ(out.type, F32({4}));
  EXPECT_EQ((*out.elements)[0], Dim(8));
  EXPECT_EQ(std::get<Type>(*bound->node(0).Find("type")), F32({9}));
  const GraphPtr body = bound->node(0).Body("then_branch");
  EXPECT_EQ(body->symbols, bound->symbols);
  EXPECT_EQ(body->symbols->ToString(body->value(0).type.dims[0]), "8*m");
  EXPECT_EQ(bound->symbols->Find("n"), std::nullopt);
  // The original is untouched.
  EXPECT_EQ(g.symbols->ToString(g.value(g.outputs[0]).type.dims[0]), "floordiv(n, 2)");
}

TEST_F(BindSymbolsTest, ReportsEveryBadSizeAtOnce) {
  EXPECT_EQ(MessageOf(BindSymbols(g, {{"k", 1}, {"m", 0}, {"n", 7}}).status()),
            "there is no input size `k`\n"
            "size `m` is 0, the model takes 1..\n"
            "size `n` is 7, the model takes 2..64 in multiples of 2");
}

TEST(ForEachGraphTest, OutermostFirst) {
  Graph inner;
  inner.name = "inner";
  Graph middle;
  middle.name = "middle";
  middle.AddNode("If", "if", {}, 0, {{"b", std::make_shared<const Graph>(inner)}});
  Graph outer;
  outer.name = "outer";
  outer.AddNode("If", "if", {}, 0, {{"b", std::make_shared<const Graph>(middle)}});
  std::string seen;
  ForEachGraph(outer, [&](const Graph& graph) { seen += graph.name + " "; });
  EXPECT_EQ(seen, "outer middle inner ");
}

}  // namespace
}  // namespace quench::graph_test
