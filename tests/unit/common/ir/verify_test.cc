#include "common/ir/verify.h"

#include <gtest/gtest.h>

#include "common/base/status.h"

namespace quench::verify_test {
namespace {

Type F32(std::vector<Dim> dims) { return Type::Tensor(DataType::kF32, std::move(dims)); }

// x, c -> Add -> y
class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest() {
    x = g.AddInput("x", F32({4}));
    c = g.AddConstant("c", Tensor::Of<float>(DataType::kF32, {4}, {1, 2, 3, 4}));
    g.AddNode("Add", "y", {x, c});
    y = g.node(0).outputs[0];
    g.value(y).type = F32({4});
    g.outputs = {y};
  }
  std::string Problem(const Graph& graph) { return MessageOf(VerifyGraph(graph)); }
  std::string Problem() { return Problem(g); }
  // A body that shares the table of `g`.
  Graph Body() {
    Graph body;
    body.symbols = g.symbols;
    body.stage = g.stage;
    return body;
  }
  void Attach(const Graph& body) {
    g.node(0).attributes["body"] = std::make_shared<const Graph>(body);
  }

  Graph g;
  ValueId x, c, y;
};

TEST_F(VerifyTest, ALegalGraphPasses) {
  EXPECT_EQ(Problem(), "");
  for (Stage stage : {Stage::kImported, Stage::kQuantized}) {
    g.stage = stage;
    EXPECT_EQ(Problem(), "");
  }
  EXPECT_EQ(Problem(Graph()), "");
}

TEST_F(VerifyTest, IdsOutOfRange) {
  g.node(0).inputs[1] = 77;
  g.outputs.push_back(-1);
  g.value(y).producer = 9;
  EXPECT_EQ(Problem(),
            "an output of the graph refers to value -1 of 3\n"
            "an input of node `y` refers to value 77 of 3\n"
            "value `y`: its producer is node 9 of 1");
  g.node(0).inputs[1] = -2;
  EXPECT_NE(Problem(), "");
}

TEST_F(VerifyTest, OmittedOperandsAreLegal) {
  g.node(0).inputs.push_back(kNone);
  g.node(0).outputs.push_back(kNone);
  EXPECT_EQ(Problem(), "");
}

TEST_F(VerifyTest, NamesAreUniqueAndNotEmpty) {
  g.value(c).name = "x";
  g.value(y).name = "";
  g.node(0).name = "";
  EXPECT_EQ(Problem(),
            "value `x`: the name is taken by another value\n"
            "value 2: it has no name\n"
            "node 0 (Add): it has no name");
}

TEST_F(VerifyTest, EveryUsedValueHasOneDefinition) {
  const ValueId loose = g.AddValue("loose", F32({4}));
  EXPECT_EQ(Problem(), "");  // nobody uses it
  g.node(0).inputs.push_back(loose);
  EXPECT_EQ(
      Problem(),
      "value `loose`: it is used, and is neither an input, a constant nor an output of a node");
}

TEST_F(VerifyTest, ConflictingDefinitions) {
  g.inputs.push_back(c);
  g.inputs.push_back(x);
  g.AddNode("Neg", "z", {x});
  g.node(1).outputs = {y};
  EXPECT_EQ(Problem(),
            "value `c`: it is an input and a constant\n"
            "value `x`: it is listed twice as an input\n"
            "value `y`: it is an output of node `y` and of node `z`\n"
            "value `y`: it is an output of node `z`, which is not recorded as its producer\n"
            "value `z`: node `z` is recorded as its producer and does not have it as an output");
}

TEST_F(VerifyTest, TopologicalOrder) {
  const NodeId late = g.AddNode("Neg", "late", {x});
  g.value(g.node(late).outputs[0]).type = F32({4});
  g.node(0).inputs[1] = g.node(late).outputs[0];
  EXPECT_EQ(Problem(), "node `y`: its input `late` comes from node `late`, which is not before it");
  g.node(0).inputs[1] = y;
  EXPECT_EQ(Problem(), "node `y`: its input `y` comes from node `y`, which is not before it");
}

TEST_F(VerifyTest, TypesAreKnownFromCanonicalOn) {
  g.value(y).type = {};
  EXPECT_EQ(Problem(), "value `y`: its type is not known");
  g.stage = Stage::kImported;
  EXPECT_EQ(Problem(), "");
}

TEST_F(VerifyTest, TypesAreWellFormed) {
  g.value(x).type.dims = {-1};
  Type sequence;
  sequence.kind = ValueKind::kSequence;
  g.value(y).type = sequence;
  EXPECT_EQ(Problem(),
            "value `x`: a size of -1, sizes are not negative\n"
            "value `y`: 0 element types, it has one");
  g.value(x).type.dims = {Dim::OfSymbol(3)};
  g.value(y).type.element = {Type{}};
  EXPECT_EQ(Problem(),
            "value `x`: a size is symbol 3 of 0\n"
            "value `y`: its element type is not known");
  g.value(x).elements = std::vector<Dim>{Dim::OfSymbol(0)};
  EXPECT_NE(Problem().find("an element is symbol 0 of 0"), std::string::npos);
}

TEST_F(VerifyTest, ConstantsMatchTheirTypes) {
  g.value(c).type = F32({2, 2});
  EXPECT_EQ(Problem(), "value `c`: its type and its constant differ in shape");
  g.value(c).type = Type::Tensor(DataType::kI64, {4});
  EXPECT_EQ(Problem(), "value `c`: its type has elements i64, its constant f32");
  g.value(c).type = F32({4});
  auto constant = std::make_shared<Constant>(*g.value(c).constant);
  constant->digest = "ABC";
  g.value(c).constant = constant;
  EXPECT_EQ(Problem(), "value `c`: its digest is not 64 lower-case hex characters");
}

TEST_F(VerifyTest, DomainAndVersionOnlyWhenImported) {
  g.node(0).domain = "com.example";
  g.node(0).version = 2;
  EXPECT_EQ(Problem(),
            "node `y`: domain `com.example` and version 2, only imported nodes have those");
  g.stage = Stage::kImported;
  EXPECT_EQ(Problem(), "");
}

TEST_F(VerifyTest, BodiesShareTableAndStage) {
  Graph body = Body();
  Attach(body);
  EXPECT_EQ(Problem(), "");
  body.stage = Stage::kQuantized;
  Attach(body);
  EXPECT_EQ(Problem(), "node `y`: attribute `body`: the body is quantized, the graph canonical");
  Attach(Graph());
  EXPECT_EQ(Problem(), "node `y`: attribute `body`: the body has a symbol table of its own");
  g.node(0).attributes["body"] = GraphPtr();
  EXPECT_EQ(Problem(), "node `y`: attribute `body` has no graph");
}

TEST_F(VerifyTest, CapturesAreForImportedBodies) {
  g.stage = Stage::kImported;
  Graph body = Body();
  const ValueId captured = body.AddValue("c", F32({4}));
  body.AddNode("Neg", "neg", {captured});
  body.outputs = body.node(0).outputs;
  Attach(body);
  EXPECT_EQ(Problem(), "");
  body.value(captured).name = "elsewhere";
  Attach(body);
  EXPECT_EQ(Problem(),
            "node `y`, body: value `elsewhere`: it is used, and is neither an input, a constant "
            "nor an output "
            "of a node");
  g.stage = Stage::kCanonical;
  body.stage = Stage::kCanonical;
  body.value(captured).name = "c";
  body.value(body.outputs[0]).type = F32({4});
  Attach(body);
  EXPECT_EQ(Problem(),
            "node `y`, body: value `c`: it is used, and is neither an input, a constant nor an "
            "output of a node");
}

TEST_F(VerifyTest, FusedNodesAreTheirBodies) {
  g.node(0).op = "q.fused";
  EXPECT_EQ(Problem(),
            "node `y`: q.fused takes its meaning from an attribute `body`, which it lacks");
  Graph body = Body();
  body.AddInput("a", F32({4}));
  body.outputs = {0};
  Attach(body);
  EXPECT_EQ(Problem(), "node `y`: it has 2 inputs and 1 outputs, its body 1 and 1");
}

TEST_F(VerifyTest, DeepNestingIsRefused) {
  Graph body = Body();
  for (int depth = 0; depth < kMaxBodyNesting + 2; ++depth) {
    Graph around = Body();
    around.AddNode("If", "if", {}, 0, {{"b", std::make_shared<const Graph>(body)}});
    body = around;
  }
  Attach(body);
  EXPECT_NE(Problem().find("bodies nest deeper than 32"), std::string::npos);
}

TEST_F(VerifyTest, SymbolsOfInputsReferToAnAxis) {
  g.symbols->AddInput("n", {0, 3});
  g.symbols->AddInput("m", {2, 0});
  EXPECT_EQ(Problem(),
            "symbol `n`: it is axis 3 of input `x` of rank 1\n"
            "symbol `m`: it is a size of input 2 of 1");
}

TEST_F(VerifyTest, RuntimeSizesBelongToOneNode) {
  g.symbols->AddRuntime("y_0", "y", std::nullopt);
  EXPECT_EQ(Problem(), "");
  Graph body = Body();
  const ValueId a = body.AddInput("a", F32({4}));
  body.AddNode("Relu", "y", {a}, 1);
  body.outputs = {1};
  body.value(1).type = F32({4});
  Attach(body);
  EXPECT_EQ(Problem(),
            "symbol `y_0`: node `y` computes it, and 2 nodes of the graph and its bodies have that "
            "name; names of such "
            "nodes must be unique");
}

}  // namespace
}  // namespace quench::verify_test
