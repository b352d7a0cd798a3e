// Attention in tiles, of the operator and of the products that exporters write, against the interpreter
// of the graph as it was.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/compile_support.h"
#include "tests/unit/services/codegen/half_layers.h"
#include "tests/unit/services/codegen/matrix_targets.h"

namespace quench::codegen::attention_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  std::string name;
  int64_t batch = 2, heads = 4, kv_heads = 4, steps = 5, keys = 5, size = 8, value_size = 8;
  std::vector<int64_t> mask = {};  // dims; none when empty
  bool bool_mask = false;
  bool causal = false, folded = true, symbolic = false;
  int64_t past = 0;
  std::vector<int64_t> lengths = {};
  double cap = 0;
  bool products = false;  // MatMul, Softmax, MatMul instead of Attention
  DataType type = DataType::kF32;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

struct Built {
  Graph graph;
  std::vector<Tensor> inputs;
};

class Builder {
 public:
  explicit Builder(const Case& c) : c_(c) {}

  Built Build() {
    if (c_.symbolic) {
      Graph& g = built_.graph;
      batch_ = Dim::OfSymbol(g.symbols->AddInput("batch", {0, 0}, {1, 64}));
      steps_ = Dim::OfSymbol(g.symbols->AddInput("steps", {0, 1}, {1, 1 << 20}));
      keys_ = c_.keys == c_.steps
                  ? steps_
                  : Dim::OfSymbol(g.symbols->AddInput("keys", {1, 1}, {0, 1 << 20}));
    } else {
      batch_ = c_.batch;
      steps_ = c_.steps;
      keys_ = c_.keys;
    }
    const ValueId q = Heads("q", c_.heads, steps_, c_.steps, c_.size, 1);
    const ValueId k = Heads("k", c_.kv_heads, keys_, c_.keys, c_.size, 2);
    const ValueId v = Heads("v", c_.kv_heads, keys_, c_.keys, c_.value_size, 3);
    c_.products ? Products(q, k, v) : Operator(q, k, v);
    Infer(built_.graph);
    return std::move(built_);
  }

 private:
  ValueId Input(const std::string& name, std::vector<Dim> dims, Tensor tensor) {
    const ValueId id = built_.graph.AddInput(name, Type::Tensor(tensor.dtype(), std::move(dims)));
    built_.inputs.push_back(std::move(tensor));
    return id;
  }

  Tensor OfType(const std::vector<int64_t>& dims, uint64_t seed) const {
    return c_.type == DataType::kF32 ? Values(dims, seed) : HalfValues(c_.type, dims, seed);
  }

  ValueId Heads(const std::string& name, int64_t heads, Dim dim, int64_t steps, int64_t size,
                uint64_t seed) {
    const std::vector<int64_t> dims = c_.folded
                                          ? std::vector<int64_t>{c_.batch, steps, heads * size}
                                          : std::vector<int64_t>{c_.batch, heads, steps, size};
    std::vector<Dim> typed(dims.begin(), dims.end());
    typed[0] = batch_;
    typed[c_.folded ? 1 : 2] = dim;
    return Input(name, typed, OfType(dims, seed));
  }

  ValueId Mask() {
    if (c_.mask.empty()) return kNone;
    std::vector<Dim> dims(c_.mask.begin(), c_.mask.end());
    const Dim full[] = {batch_, c_.heads, steps_, keys_};
    const int64_t sizes[] = {c_.batch, c_.heads, c_.steps, c_.keys + c_.past};
    for (size_t i = 0; i < dims.size(); ++i) {
      const size_t axis = 4 - dims.size() + i;
      if (c_.symbolic && c_.mask[i] == sizes[axis]) dims[i] = full[axis];
    }
    Tensor values = Values(c_.mask, 9);
    if (!c_.bool_mask) return Input("mask", dims, values);
    Tensor chosen = Tensor::Zeros(DataType::kBool, c_.mask);
    for (int64_t i = 0; i < values.size(); ++i)
      chosen.mutable_bytes()[i] = std::byte(values.FloatAt(i) > -0.3 ? 1 : 0);
    return Input("mask", dims, chosen);
  }

  void Operator(ValueId q, ValueId k, ValueId v) {
    Graph& g = built_.graph;
    std::vector<ValueId> inputs = {q, k, v, Mask()};
    if (c_.past > 0) {
      for (const auto& [name, size] : {std::pair("past_k", c_.size), {"past_v", c_.value_size}}) {
        const std::vector<int64_t> dims = {c_.batch, c_.kv_heads, c_.past, size};
        std::vector<Dim> typed(dims.begin(), dims.end());
        typed[0] = batch_;
        inputs.push_back(Input(name, typed, OfType(dims, 5)));
      }
    }
    if (!c_.lengths.empty()) {
      inputs.resize(6, kNone);
      inputs.push_back(Input("lengths", {batch_}, Tensor::I64(c_.lengths)));
    }
    std::map<std::string, Attribute> attributes;
    if (c_.folded) attributes = {{"q_num_heads", c_.heads}, {"kv_num_heads", c_.kv_heads}};
    if (c_.causal) attributes["is_causal"] = int64_t{1};
    if (c_.cap > 0) attributes["softcap"] = c_.cap;
    const NodeId node =
        g.AddNode("Attention", "attention", inputs, c_.past > 0 ? 3 : 1, attributes);
    g.outputs = g.node(node).outputs;
  }

  // Heads side by side are taken apart; of rank 4 they are as they are.
  ValueId Apart(ValueId id, int64_t heads, int64_t size, const std::vector<int64_t>& perm) {
    Graph& g = built_.graph;
    if (c_.folded)
      id = Node1(g, "Reshape", {id, g.AddConstant("heads", Tensor::I64({0, 0, heads, size}))});
    std::vector<int64_t> order = perm;
    if (!c_.folded)
      order = perm[2] == 3 ? std::vector<int64_t>{0, 1, 3, 2} : std::vector<int64_t>{};
    return order.empty() ? id : Node1(g, "Transpose", {id}, {{"perm", order}});
  }

  void Products(ValueId q, ValueId k, ValueId v) {
    Graph& g = built_.graph;
    q = Apart(q, c_.heads, c_.size, {0, 2, 1, 3});
    k = Apart(k, c_.kv_heads, c_.size, {0, 2, 3, 1});
    v = Apart(v, c_.kv_heads, c_.value_size, {0, 2, 1, 3});
    ValueId scores = Node1(g, "MatMul", {q, k});
    scores = Node1(g, "Div", {scores, g.AddConstant("root", Tensor::ScalarF32(2.5F))});
    if (const ValueId mask = Mask(); mask != kNone && c_.bool_mask) {
      scores = Node1(g, "Where", {mask, scores, g.AddConstant("fill", Tensor::ScalarF32(-3))});
    } else if (mask != kNone) {
      scores = Node1(g, "Add", {mask, scores});
    }
    ValueId y = Node1(g, "MatMul", {Node1(g, "Softmax", {scores}), v});
    if (c_.folded) {
      y = Node1(g, "Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
      y = Node1(g, "Reshape",
                {y, g.AddConstant("columns", Tensor::I64({0, 0, c_.heads * c_.value_size}))});
    }
    g.outputs = {y};
  }

  const Case& c_;
  Built built_;
  Dim batch_ = 1, steps_ = 1, keys_ = 1;
};

int CountAttention(const Compiled& compiled) {
  int count = 0;
  for (const KernelReport& report : compiled.report.kernels)
    count += report.kernel == "attention" ? 1 : 0;
  return count;
}

// NaN and infinities where `right` has them.
void ExpectNear(const Tensor& actual, const Tensor& right, double tolerance,
                const std::string& what) {
  ASSERT_EQ(actual.dims(), right.dims());
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double value = actual.FloatAt(i), wanted = right.FloatAt(i);
    const bool same = std::isnan(wanted)   ? std::isnan(value)
                      : std::isinf(wanted) ? value == wanted
                                           : std::abs(value - wanted) <= tolerance;
    ASSERT_TRUE(same) << what << ": element " << i << " is " << value << ", not " << wanted;
  }
}

void ExpectClose(const Graph& graph, const std::vector<Tensor>& inputs, double tolerance) {
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(graph, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ForEachBuild(graph, {0}, [&](const Compiled& compiled, int level, const std::string& build) {
    EXPECT_EQ(CountAttention(compiled), level >= 2 ? 1 : 0) << build;
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      for (size_t output = 0; output < actual.size(); ++output) {
        ExpectNear(actual[output], (*expected)[output], tolerance,
                   fmt::format("{}, {}, output {}", build, run, output));
      }
    });
  });
}

class AttentionTest : public testing::TestWithParam<Case> {};

TEST_P(AttentionTest, EqualsTheOperators) {
  const Built built = Builder(GetParam()).Build();
  const DataType type = GetParam().type;
  ExpectClose(built.graph, built.inputs, type == DataType::kF32 ? 1e-5 : 4 * HalfEpsilon(type));
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {.name = "small"},
      {.name = "one_key", .steps = 3, .keys = 1},
      {.name = "one_query", .steps = 1, .keys = 37},
      {.name = "few_queries", .steps = 3, .keys = 19, .size = 5, .value_size = 7},
      {.name = "odd_sizes",
       .heads = 3,
       .kv_heads = 3,
       .steps = 29,
       .keys = 41,
       .size = 11,
       .value_size = 21},
      {.name = "wide_heads",
       .batch = 1,
       .heads = 2,
       .kv_heads = 2,
       .steps = 33,
       .keys = 40,
       .size = 80,
       .value_size = 96},
      {.name = "apart", .steps = 17, .keys = 23, .folded = false},
      {.name = "shared_heads", .heads = 6, .kv_heads = 2, .steps = 21, .keys = 21},
      {.name = "several_blocks", .batch = 1, .heads = 2, .kv_heads = 1, .steps = 150, .keys = 530},
      {.name = "causal", .steps = 45, .keys = 45, .causal = true},
      {.name = "causal_wide", .steps = 9, .keys = 45, .causal = true},
      {.name = "causal_tall", .steps = 45, .keys = 9, .causal = true},
      {.name = "causal_blocks",
       .batch = 1,
       .heads = 2,
       .kv_heads = 2,
       .steps = 400,
       .keys = 400,
       .causal = true},
      {.name = "past", .steps = 6, .keys = 6, .causal = true, .past = 9},
      {.name = "past_one_query",
       .heads = 4,
       .kv_heads = 2,
       .steps = 1,
       .keys = 1,
       .causal = true,
       .past = 300},
      {.name = "past_masked", .steps = 6, .keys = 6, .mask = {2, 1, 6, 15}, .past = 9},
      {.name = "lengths", .steps = 7, .keys = 30, .folded = false, .lengths = {30, 8}},
      {.name = "lengths_causal",
       .steps = 7,
       .keys = 30,
       .causal = true,
       .folded = false,
       .lengths = {30, 8}},
      {.name = "lengths_blocks",
       .heads = 1,
       .kv_heads = 1,
       .steps = 40,
       .keys = 600,
       .folded = false,
       .lengths = {41, 557}},
      {.name = "lengths_one_query",
       .steps = 1,
       .keys = 600,
       .causal = true,
       .folded = false,
       .lengths = {600, 257}},
      {.name = "row_mask", .steps = 19, .keys = 19, .mask = {2, 1, 1, 19}},
      {.name = "whole_mask", .steps = 19, .keys = 22, .mask = {2, 4, 19, 22}},
      {.name = "matrix_mask", .steps = 19, .keys = 22, .mask = {19, 22}},
      {.name = "bool_mask", .steps = 19, .keys = 22, .mask = {4, 19, 22}, .bool_mask = true},
      {.name = "bool_row", .steps = 1, .keys = 400, .mask = {2, 1, 1, 400}, .bool_mask = true},
      {.name = "capped", .steps = 13, .keys = 18, .mask = {13, 18}, .cap = 1.5},
      {.name = "symbolic", .steps = 37, .keys = 37, .symbolic = true},
      {.name = "symbolic_few", .steps = 2, .keys = 300, .symbolic = true},
      {.name = "symbolic_long",
       .batch = 1,
       .steps = 19,
       .keys = 700,
       .causal = true,
       .symbolic = true},
      {.name = "symbolic_mask",
       .steps = 37,
       .keys = 37,
       .mask = {2, 1, 37, 37},
       .bool_mask = true,
       .symbolic = true},
      {.name = "f16", .steps = 21, .keys = 33, .type = DataType::kF16},
      {.name = "bf16", .steps = 21, .keys = 33, .type = DataType::kBF16},
  };
  for (Case c : std::vector<Case>(cases)) {
    const bool plain =
        c.heads == c.kv_heads && !c.causal && c.past == 0 && c.lengths.empty() && c.cap == 0;
    if (!plain || c.type != DataType::kF32) continue;
    c.name = "products_" + c.name;
    c.products = true;
    cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionTest, testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

// The same in halves, where the target multiplies matrices of them.
class AttentionInMatrices : public testing::TestWithParam<Case> {};

TEST_P(AttentionInMatrices, EqualsTheOperators) {
  const Case& c = GetParam();
  const Built built = Builder(c).Build();
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(built.graph, built.inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const std::string& target : MatrixTargets()) {
    CompileOptions options;
    options.target = target;
    const absl::StatusOr<Compiled> compiled = CompileGraph(built.graph, options);
    ASSERT_TRUE(compiled.ok()) << target << ": " << compiled.status();
    ForEachRun(*compiled, built.inputs,
               [&](const std::vector<Tensor>& actual, const std::string& run) {
                 for (size_t i = 0; i < actual.size(); ++i) {
                   ExpectNear(actual[i], (*expected)[i], 4 * HalfEpsilon(c.type),
                              fmt::format("{}, {}, output {}", target, run, i));
                 }
               });
    // Registers of 16 words of keys and values; words are of two numbers.
    const bool emulated = target.ends_with("-emulate-matrices");
    if (emulated && c.steps > 4 && c.size % 2 == 0 && c.value_size % 16 == 0)
      EXPECT_TRUE(InMatrices(compiled->report)) << target;
  }
}

std::vector<Case> HalfCases() {
  std::vector<Case> cases = {
      {.name = "heads_of_64", .batch = 1, .steps = 128, .keys = 128, .size = 64, .value_size = 64},
      {.name = "sizes_differ", .steps = 21, .keys = 70, .size = 40, .value_size = 48},
      {.name = "long_causal",
       .batch = 1,
       .heads = 2,
       .kv_heads = 1,
       .steps = 75,
       .keys = 600,
       .size = 64,
       .value_size = 32,
       .causal = true},
  };
  for (const Case& c : Cases()) {
    if (!c.products) cases.push_back(c);
  }
  for (Case& c : cases) {
    if (c.type == DataType::kF32) c.type = DataType::kBF16;
    if (c.value_size == 8) c.value_size = 16;
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionInMatrices, testing::ValuesIn(HalfCases()),
                         [](const auto& test) { return test.param.name; });

// Products over no keys are 0, one by one and in tiles.
TEST(AttentionTest, NoKeys) {
  for (const int64_t steps : {int64_t{2}, int64_t{20}}) {
    const Case c{.name = "", .steps = steps, .keys = 0, .symbolic = true, .products = true};
    const Built built = Builder(c).Build();
    ExpectClose(built.graph, built.inputs, 0);
  }
}

// For queries that may attend to nothing, Attention gives 0 and Softmax NaN; with masks that shut
// out single keys, infinities and NaN come out where the operators have them.
TEST(AttentionTest, ScoresThatAreNotFinite) {
  for (const bool products : {false, true}) {
    for (const int64_t steps : {int64_t{3}, int64_t{20}}) {
      Case c{.name = "",
             .batch = 1,
             .heads = 2,
             .kv_heads = 2,
             .steps = steps,
             .keys = 20,
             .mask = {steps, 20},
             .products = products};
      Built built = Builder(c).Build();
      auto* mask = reinterpret_cast<float*>(built.inputs[3].mutable_bytes());
      for (int64_t j = 0; j < 20; ++j) mask[20 + j] = -kInfinity;
      for (int64_t j = 0; j < 20; j += 2) mask[j] = -kInfinity;
      auto* query = reinterpret_cast<float*>(built.inputs[0].mutable_bytes());
      query[2 * 16] = std::numeric_limits<float>::quiet_NaN();
      query[2 * 16 + 9] = kInfinity;
      ExpectClose(built.graph, built.inputs, 1e-5);
    }
  }
}

// Query i is at past + i, however many keys are new; and lengths that are too few are refused.
TEST(AttentionTest, WhatTypesDoNotTellIsLeftToTheOperator) {
  Case c{.name = "", .steps = 2, .keys = 4, .causal = true, .past = 3};
  const Built built = Builder(c).Build();
  for (const int level : {0, 3}) ExpectSame(built.graph, built.inputs, level);

  Case lengths{.name = "", .steps = 2, .keys = 9, .folded = false, .lengths = {5, 7}};
  Built other = Builder(lengths).Build();
  Graph& graph = other.graph;
  graph.value(graph.inputs[3]).type.dims = {
      Dim::OfSymbol(graph.symbols->AddInput("n", {3, 0}, {1, 9}))};
  Infer(graph);
  ExpectSame(graph, other.inputs, 3);
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(CountAttention(*compiled), 0);
  other.inputs[3] = Tensor::I64({5});
  EXPECT_FALSE(Artifact::Open(compiled->library(), 1).value()->Run(other.inputs).ok());
}

// Values behind the lengths may be anything.
TEST(AttentionTest, KeysOutOfReachAreNotRead) {
  for (const int64_t steps : {int64_t{1}, int64_t{20}}) {
    Case c{.name = "", .steps = steps, .keys = 50, .folded = false, .lengths = {30, 21}};
    Built built = Builder(c).Build();
    for (const size_t i : {1U, 2U}) {
      auto* values = reinterpret_cast<float*>(built.inputs[i].mutable_bytes());
      for (int64_t n = 0; n < 2; ++n) {
        for (int64_t h = 0; h < 4; ++h) {
          for (int64_t j = c.lengths[static_cast<size_t>(n)]; j < 50; ++j)
            std::fill_n(values + ((n * 4 + h) * 50 + j) * 8, 8, std::nanf(""));
        }
      }
    }
    const absl::StatusOr<Compiled> compiled = CompileGraph(built.graph);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ForEachRun(*compiled, built.inputs,
               [&](const std::vector<Tensor>& actual, const std::string& run) {
                 for (int64_t i = 0; i < actual[0].size(); ++i)
                   ASSERT_TRUE(std::isfinite(actual[0].FloatAt(i))) << run << ": element " << i;
               });
  }
}

}  // namespace
}  // namespace quench::codegen::attention_test
