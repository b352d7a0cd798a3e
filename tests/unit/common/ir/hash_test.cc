#include "common/ir/hash.h"

#include <gtest/gtest.h>

#include <functional>

#include "common/blobs/digest.h"

namespace quench::hash_test {
namespace {

struct Choices {
  std::string prefix = "";           // of all internal names
  bool second_branch_first = false;  // order of two independent nodes
  std::string symbol = "n";
  bool reverse_symbols = false;  // order in which expressions enter the table
  float weight = 2;
};

// y = If(Relu(x) + w, Neg(x)); a symbolic input, a constant, a body, attributes of several kinds.
Graph Build(const Choices& choices = {}) {
  Graph g;
  const auto name = [&](const std::string& text) { return choices.prefix + text; };
  const Dim n = Dim::OfSymbol(g.symbols->AddInput(choices.symbol, {0, 0}, {1, 64}));
  const Dim m = Dim::OfSymbol(g.symbols->AddInput(choices.symbol + "m", {0, 1}));
  if (choices.reverse_symbols) g.symbols->Max(g.symbols->Add(m, 5), n);
  const Dim odd = g.symbols->Add(g.symbols->Mul(n, 2), m);
  const ValueId x = g.AddInput("x", Type::Tensor(DataType::kF32, {n, m}));
  const ValueId t =
      g.AddInput("t", Type::Tensor(DataType::kF32, {g.symbols->Max(n, g.symbols->Add(m, 5)), odd}));
  const ValueId w = g.AddConstant(name("w"), Tensor::ScalarF32(choices.weight));
  ValueId relu = kNone;
  ValueId neg = kNone;
  const auto add_neg = [&] { neg = g.node(g.AddNode("Neg", name("neg"), {x})).outputs[0]; };
  if (choices.second_branch_first) add_neg();
  relu = g.node(g.AddNode("Relu", name("relu"), {x}, 1,
                          {{"alpha", 0.5}, {"axes", std::vector<int64_t>{1, 2}}}))
             .outputs[0];
  if (!choices.second_branch_first) add_neg();
  const ValueId sum = g.node(g.AddNode("Add", name("sum"), {relu, w})).outputs[0];

  Graph body;
  body.symbols = g.symbols;
  const ValueId inner = body.AddInput(name("inner"), {});
  body.AddNode("Abs", name("abs"), {inner});
  body.outputs = body.node(0).outputs;
  const NodeId last =
      g.AddNode("If", name("if"), {sum, neg, t, kNone}, 1,
                {{"body", std::make_shared<const Graph>(body)}, {"mode", std::string("fast")}});
  g.value(g.node(last).outputs[0]).name = "y";
  g.outputs = g.node(last).outputs;
  g.node(last).origin = choices.prefix;
  g.metadata["producer"] = choices.prefix;
  return g;
}

Choices Heavier() {
  Choices choices;
  choices.weight = 3;
  return choices;
}

// Identities are promises to every later version: these change only with a new version of the hash.
TEST(HashTest, GoldenValues) {
  EXPECT_EQ(Fingerprint(Build()),
            "5697387314a67a0c93206af09b5d4d773425ae991cc7670fc2e0f8847ce5f4f4");
  EXPECT_EQ(StructureHash(Build()),
            "f6cab5c9c80849cd2b9870351171f3ddbbafa2ae05887f815f27e964924af36a");
  EXPECT_EQ(Fingerprint(Graph()),
            "ddb4eabab1bc10cd42ac4330176181d0216a14b2876f647e5eb02cbc01a8055c");
}

TEST(HashTest, NamesOrderAndTablesDoNotMatter) {
  const std::string fingerprint = Fingerprint(Build());
  const std::string structure = StructureHash(Build());
  for (const Choices& choices : {Choices{"other."}, Choices{"", true}, Choices{"", false, "batch"},
                                 Choices{"", false, "n", true}}) {
    EXPECT_EQ(Fingerprint(Build(choices)), fingerprint);
    EXPECT_EQ(StructureHash(Build(choices)), structure);
  }
}

TEST(HashTest, WeightsMatterToTheFingerprintOnly) {
  EXPECT_NE(Fingerprint(Build(Heavier())), Fingerprint(Build()));
  EXPECT_EQ(StructureHash(Build(Heavier())), StructureHash(Build()));
}

TEST(HashTest, InterfaceNamesMatterToTheFingerprintOnly) {
  Graph g = Build();
  g.value(g.outputs[0]).name = "z";
  EXPECT_NE(Fingerprint(g), Fingerprint(Build()));
  EXPECT_EQ(StructureHash(g), StructureHash(Build()));
}

TEST(HashTest, KnownDigestsAreUsed) {
  Graph g = Build();
  const ValueId w = *g.FindValue("w");
  auto constant = std::make_shared<Constant>(*g.value(w).constant);
  constant->digest = TensorDigest(constant->tensor);
  g.value(w).constant = constant;
  EXPECT_EQ(Fingerprint(g), Fingerprint(Build()));
}

TEST(HashTest, EveryPartOfTheStructureMatters) {
  const std::string structure = StructureHash(Build());
  const auto differs = [&](const char* what, const std::function<void(Graph&)>& change) {
    Graph g = Build();
    change(g);
    EXPECT_NE(StructureHash(g), structure) << what;
    EXPECT_NE(Fingerprint(g), Fingerprint(Build())) << what;
  };
  const auto last = [](Graph& g) -> Node& { return g.nodes.back(); };
  differs("operator", [](Graph& g) { g.nodes[0].op = "Selu"; });
  differs("attribute value", [](Graph& g) { g.nodes[0].attributes["alpha"] = 0.25; });
  differs("attribute kind", [](Graph& g) { g.nodes[0].attributes["alpha"] = int64_t{1}; });
  differs("attribute name", [](Graph& g) { g.nodes[0].attributes["beta"] = int64_t{1}; });
  differs("operand order", [&](Graph& g) { std::swap(last(g).inputs[0], last(g).inputs[1]); });
  differs("omitted operand", [&](Graph& g) { last(g).inputs.pop_back(); });
  differs("unused output", [&](Graph& g) { last(g).outputs.push_back(kNone); });
  differs("input type", [](Graph& g) { g.value(g.inputs[0]).type.dtype = DataType::kF16; });
  differs("input size", [](Graph& g) { g.value(g.inputs[0]).type.dims[0] = 4; });
  differs("symbol range", [](Graph& g) { ASSERT_TRUE(g.symbols->Restrict(0, {1, 32}).ok()); });
  differs("unused input", [](Graph& g) { g.AddInput("u", Type::Tensor(DataType::kF32, {})); });
  differs("second output", [](Graph& g) { g.outputs.push_back(g.nodes[0].outputs[0]); });
  differs("dead node", [](Graph& g) { g.AddNode("Abs", "dead", {0}); });
  differs("constant type", [](Graph& g) {
    auto constant = std::make_shared<Constant>();
    constant->tensor = Tensor::Of<float>(DataType::kF32, {1}, {2});
    g.value(*g.FindValue("w")).constant = constant;
  });
  differs("body", [&](Graph& g) {
    Graph body = *last(g).Body("body");
    body.nodes[0].op = "Neg";
    last(g).attributes["body"] = std::make_shared<const Graph>(body);
  });
}

// One random draw used twice is not two draws.
TEST(HashTest, SharingMatters) {
  const auto build = [](bool shared) {
    Graph g;
    const ValueId a = g.node(g.AddNode("RandomNormal", "a", {})).outputs[0];
    const ValueId b = g.node(g.AddNode("RandomNormal", "b", {})).outputs[0];
    g.AddNode("Sub", "y", {a, shared ? a : b});
    g.outputs = g.nodes.back().outputs;
    return g;
  };
  EXPECT_NE(StructureHash(build(true)), StructureHash(build(false)));
}

TEST(HashTest, CapturesResolveToTheirValue) {
  const auto build = [](const std::string& name, bool of_relu) {
    Graph g;
    g.stage = Stage::kImported;
    const ValueId x = g.AddInput("x", Type::Tensor(DataType::kF32, {2}));
    g.AddNode("Relu", of_relu ? name : name + "_r", {x});
    g.AddNode("Neg", of_relu ? name + "_n" : name, {x});
    Graph body;
    body.stage = g.stage;
    body.symbols = g.symbols;
    body.AddNode("Abs", "abs", {body.AddValue(name)});
    body.outputs = body.node(0).outputs;
    g.AddNode("If", "y", {x}, 1, {{"b", std::make_shared<const Graph>(body)}});
    g.outputs = g.nodes.back().outputs;
    return g;
  };
  EXPECT_EQ(Fingerprint(build("c", true)), Fingerprint(build("d", true)));
  EXPECT_NE(Fingerprint(build("c", true)), Fingerprint(build("c", false)));
}

TEST(TensorDigestTest, OwnBytes) {
  EXPECT_EQ(TensorDigest(Tensor::Strings({1}, {"ab"})),
            Sha256Hex(std::string("\2\0\0\0\0\0\0\0ab", 10)));
  EXPECT_EQ(TensorDigest(Tensor::Of<uint8_t>(DataType::kU8, {3}, {'a', 'b', 'c'})),
            Sha256Hex("abc"));
  EXPECT_NE(TensorDigest(Tensor::Strings({2}, {"a", "b"})),
            TensorDigest(Tensor::Strings({1}, {"ab"})));
}

TEST(WithDigestsTest, LargeConstantsKnowTheirDigest) {
  Graph g;
  const ValueId large =
      g.AddConstant("large", Tensor::Zeros(DataType::kF32, {kMaxInlineBytes / 4 + 1}));
  const ValueId small = g.AddConstant("small", Tensor::ScalarF32(1));
  const ValueId same = g.AddConstant("same", Tensor::ScalarF32(1));
  g.value(same).constant = g.value(large).constant;
  const Graph hashed = WithDigests(g);
  EXPECT_EQ(hashed.value(large).constant->digest, TensorDigest(g.value(large).constant->tensor));
  EXPECT_EQ(hashed.value(same).constant, hashed.value(large).constant);
  EXPECT_EQ(hashed.value(small).constant, g.value(small).constant);
  EXPECT_EQ(g.value(large).constant->digest, "");
}

}  // namespace
}  // namespace quench::hash_test
