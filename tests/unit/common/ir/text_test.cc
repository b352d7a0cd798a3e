#include "common/ir/text.h"

#include <gtest/gtest.h>

#include <random>

#include "common/base/status.h"
#include "common/ir/compare.h"
#include "common/ir/constants.h"
#include "common/ir/hash.h"
#include "common/ir/verify.h"
#include "tests/unit/common/ir/sample_graphs.h"

namespace quench::text_test {
namespace {

void ExpectRoundTrip(const Graph& g) {
  const std::string text = PrintGraph(g);
  const absl::StatusOr<Graph> parsed = ParseGraph(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
  EXPECT_EQ(FirstDifference(g, *parsed), "") << text;
  EXPECT_EQ(Fingerprint(g), Fingerprint(*parsed)) << text;
  EXPECT_EQ(VerifyGraph(*parsed), absl::OkStatus()) << text;
}

TEST(TextTest, Reads) {
  const std::string text = R"(quench.ir 1
module "mlp" canonical {
  meta "producer" = "tests"
  symbol n = input(0, 0) in 1..64 multiple 2
  input %x: f32[n, 2]
  const %w: f32[2] = [1.0, -0.5]
  %h: f32[n, 2] = MatMul(%x, %w)
  %a: f32[floordiv(n, 2), 1], _ = Split(%h, _) {axis = 0, ratio = 0.5, sizes = [1, 1]} as "split" from "/Split"
  output %a
}
)";
  const absl::StatusOr<Graph> g = ParseGraph(text);
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(PrintGraph(*g), text);
  EXPECT_EQ(g->name, "mlp");
  EXPECT_EQ(g->nodes.size(), 2u);
  EXPECT_EQ(g->node(0).name, "h");
  EXPECT_EQ(g->node(1).name, "split");
  EXPECT_EQ(g->node(1).origin, "/Split");
  EXPECT_EQ(g->node(1).Ints("sizes"), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(g->node(1).inputs[1], kNone);
  EXPECT_EQ(g->node(1).outputs[1], kNone);
  EXPECT_EQ(VerifyGraph(*g), absl::OkStatus());
}

TEST(TextTest, WrittenByHand) {
  // Comments, free layout, mixed lists, no types, ONNX and NumPy names of element types.
  const absl::StatusOr<Graph> g = ParseGraph(
      "quench.ir 1 module \"m\" canonical { # comment\n input %x: float32[2] input %y: int64[]"
      "  %z = Op(%x,%y){a=[1,2.5],b=graph\"b\"{input %q output %q}}\n\n output %z output %x }");
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->node(0).Floats("a"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(g->node(0).Body("b")->inputs.size(), 1u);
  EXPECT_EQ(g->outputs.size(), 2u);
  EXPECT_FALSE(g->value(g->outputs[0]).type.known());
}

TEST(TextTest, EverythingComesBack) {
  ExpectRoundTrip(testing::EverythingGraph());
  ExpectRoundTrip(testing::EveryConstantGraph());
  ExpectRoundTrip(testing::ImportedGraph());
  ExpectRoundTrip(Graph());
}

TEST(TextTest, RandomGraphsComeBack) {
  for (uint32_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    ExpectRoundTrip(testing::RandomGraph(seed));
  }
}

TEST(TextTest, UntypedTextKeepsInterfaceAndConstants) {
  const Graph g = testing::EverythingGraph();
  const std::string text = PrintGraph(g, {.types = false});
  EXPECT_NE(text.find("input %x: f32[n, \"past + now\", 3]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("%shape = Shape(%x)\n"), std::string::npos) << text;
  const absl::StatusOr<Graph> parsed = ParseGraph(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Fingerprint(*parsed), Fingerprint(g));
}

TEST(TextTest, LongExpressionsAreNamedOnce) {
  const std::string text = PrintGraph(testing::EverythingGraph());
  EXPECT_NE(text.find("  let $"), std::string::npos);
  EXPECT_LT(text.size(), 20000u);
}

class LargeConstantTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Create();
    ASSERT_TRUE(folder.ok());
    folder_.emplace(*std::move(folder));
    store_ = *LocalBlobStore::Open(folder_->path());
    std::vector<float> values(2000);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    auto constant = std::make_shared<Constant>();
    constant->tensor = Tensor::Of(DataType::kF32, {2000}, values);
    constant->digest = TensorDigest(constant->tensor);
    ConstantWriter writer(*store_);
    ASSERT_TRUE(writer.Add(constant->tensor, &constant->location).ok());
    ASSERT_TRUE(writer.Finish().ok());
    const ValueId w = g_.AddConstant("w", constant->tensor);
    g_.value(w).constant = constant;
    g_.outputs = {w};
  }
  std::optional<TempDir> folder_;
  std::shared_ptr<LocalBlobStore> store_;
  Graph g_;
};

TEST_F(LargeConstantTest, TravelByDigestAndLocation) {
  const std::string text = PrintGraph(g_);
  EXPECT_LT(text.size(), 400u);
  const absl::StatusOr<Graph> parsed = ParseGraph(text, ConstantLoaderFrom(*store_));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(FirstDifference(g_, *parsed), "");
  EXPECT_EQ(parsed->value(0).constant->location, g_.value(0).constant->location);
}

TEST_F(LargeConstantTest, NeedAStore) {
  const std::string text = PrintGraph(g_);
  EXPECT_EQ(MessageOf(ParseGraph(text).status()),
            "3:25: the constant lies in a blob store, and there is none to read it from");
  ASSERT_TRUE(store_->Prune(0).ok());
  EXPECT_EQ(ParseGraph(text, ConstantLoaderFrom(*store_)).status().code(),
            absl::StatusCode::kNotFound);
  auto constant = std::make_shared<Constant>(*g_.value(0).constant);
  constant->location.clear();
  g_.value(0).constant = constant;
  EXPECT_EQ(
      MessageOf(ParseGraph(PrintGraph(g_)).status()),
      "3:25: the constant is known by its digest only, the text does not say where its bytes are");
}

TEST_F(LargeConstantTest, SmallOnesCanBeLeftOutToo) {
  Graph g;
  g.outputs = {g.AddConstant("c", Tensor::I64({1}))};
  const std::string text = PrintGraph(g, {.constants = false});
  EXPECT_NE(text.find("const %c: i64[1] = sha256 \"" + TensorDigest(Tensor::I64({1})) + "\""),
            std::string::npos);
}

// Each body stands in a module whose header is line 1 and 2.
std::string Problem(const std::string& body) {
  return MessageOf(ParseGraph("quench.ir 1\nmodule \"m\" canonical {\n" + body + "\n}").status());
}

TEST(TextErrorTest, NameLineAndColumn) {
  EXPECT_EQ(Problem("%y = Neg(%x)"), "3:10: value `x` is not defined before its use");
  EXPECT_EQ(Problem("input %x\ninput %x"), "4:7: value `x` is already defined");
  EXPECT_EQ(Problem("%x = A()\n%y = B() as \"x\""), "4:10: node `x` is already defined");
  EXPECT_EQ(Problem("input %x: f33[1]"),
            "3:11: an element type like `f32` was expected, not `f33`");
  EXPECT_EQ(Problem("input %x: f32[q]"), "3:15: size `q`, character 1: there is no symbol `q`");
  EXPECT_EQ(Problem("input %x: f32[-1]"), "3:15: a size is not negative");
  EXPECT_EQ(Problem("const %c: f32[2] = [1.0]"), "3:21: 1 elements, the type has 2");
  EXPECT_EQ(Problem("const %c: u8[1] = [256]"), "3:20: `256` is not a value of type u8");
  EXPECT_EQ(Problem("const %c: f8e4m3fn[1] = [3.3]"),
            "3:26: `3.3` is not a value of type f8e4m3fn");
  EXPECT_EQ(Problem("const %c: f32[n] = [1.0]"),
            "3:15: size `n`, character 1: there is no symbol `n`");
  EXPECT_EQ(Problem("const %c: f32[9223372036854775807, 2] = [1.0]"),
            "3:41: the shape of the constant exceeds 2^63 elements");
  EXPECT_EQ(Problem("%y = A() {a = 1, a = 2}"), "3:18: attribute `a` is given twice");
  EXPECT_EQ(Problem("%y = A() {a = 99999999999999999999}"),
            "3:15: `99999999999999999999` exceeds 64 bits");
  EXPECT_EQ(Problem("%y = A() {a = 1e999}"), "3:15: `1e999` exceeds the range of 64-bit floats");
  EXPECT_EQ(Problem("%y = A() {a = [1, \"b\"]}"), "3:19: a list has numbers or strings, not both");
  EXPECT_EQ(Problem("%y = A(%y)"), "3:8: the node takes its own output");
  EXPECT_EQ(Problem("() = A()"),
            "4:1: `as \"name\"` was expected: the node has no output to be named by");
  EXPECT_EQ(Problem("symbol n = input(0, 0)\nsymbol n = input(0, 1)"),
            "4:8: symbol `n` is already defined");
  EXPECT_EQ(Problem("symbol n = input(0, 0) in 5..3"),
            "3:12: indices and ranges are not negative or empty, and multiples are positive");
  EXPECT_EQ(Problem("!"), "3:1: `!` starts nothing");
  EXPECT_EQ(Problem("meta \"a"), "3:6: the string does not end");
  EXPECT_EQ(Problem("input"), "4:1: a value like `%x` was expected, not `}`");
}

TEST(TextErrorTest, Headers) {
  const auto problem = [](const std::string& text) { return MessageOf(ParseGraph(text).status()); };
  EXPECT_EQ(problem(""), "1:1: the text starts with `quench.ir 1`");
  EXPECT_EQ(problem("quench.ir 2"), "1:11: text version 2, this is version 1");
  EXPECT_EQ(problem("quench.ir 1 module \"m\" fancy {}"),
            "1:24: a stage was expected: imported, canonical or quantized");
  EXPECT_EQ(problem("quench.ir 1 module \"m\" canonical {} x"),
            "1:37: nothing was expected after the module");
  EXPECT_EQ(problem("quench.ir 1 module \"m\" canonical {"), "1:35: `}` was expected");
}

TEST(TextErrorTest, NestingIsBounded) {
  std::string bodies;
  std::string types;
  for (int i = 0; i < 100000; ++i) {
    bodies += "%y = A() {b = graph \"\" {";
    types += "sequence(";
  }
  EXPECT_NE(Problem(bodies).find("bodies nest deeper than 32"), std::string::npos);
  EXPECT_NE(Problem("input %x: " + types).find("types nest deeper than 32"), std::string::npos);
  EXPECT_FALSE(ParseGraph("quench.ir 1 " + std::string(size_t{65} << 20, ' ')).ok());
}

// Damaged text gives a graph or an error, and whatever is accepted prints and parses again.
TEST(TextErrorTest, RandomDamage) {
  std::mt19937 random(11);
  const std::string good = PrintGraph(testing::EverythingGraph());
  int accepted = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string text = good;
    for (size_t i = 0, n = 1 + random() % 3; i < n; ++i) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 30));
          break;
        default:
          text.insert(at, std::string(1, "()[]{}%$,=-0\"#"[random() % 14]));
      }
      if (text.empty()) text = "x";
    }
    const absl::StatusOr<Graph> parsed = ParseGraph(text);
    if (!parsed.ok()) continue;
    ++accepted;
    (void)VerifyGraph(*parsed);
    const absl::StatusOr<Graph> again = ParseGraph(PrintGraph(*parsed));
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
    ASSERT_EQ(FirstDifference(*parsed, *again), "") << text;
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace quench::text_test
