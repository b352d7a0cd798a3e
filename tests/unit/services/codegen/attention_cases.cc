#include "tests/unit/services/codegen/attention_cases.h"

#include <fmt/format.h>

#include <cmath>

#include "tests/unit/services/codegen/half_layers.h"

namespace quench::codegen {
namespace {

class AttentionBuilder {
 public:
  explicit AttentionBuilder(const AttentionCase& c) : c_(c) {}

  BuiltAttention Build() {
    if (c_.symbolic) {
      Graph& g = built_.graph;
      const int axis = c_.folded ? 1 : 2;
      batch_ = Dim::OfSymbol(g.symbols->AddInput("batch", {0, 0}, {1, 64}));
      steps_ = Dim::OfSymbol(g.symbols->AddInput("steps", {0, axis}, {1, 1 << 20}));
      keys_ = c_.keys == c_.steps
                  ? steps_
                  : Dim::OfSymbol(g.symbols->AddInput("keys", {1, axis}, {0, 1 << 20}));
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

  const AttentionCase& c_;
  BuiltAttention built_;
  Dim batch_ = 1, steps_ = 1, keys_ = 1;
};

}  // namespace

BuiltAttention BuildAttention(const AttentionCase& c) { return AttentionBuilder(c).Build(); }

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

std::vector<AttentionCase> AttentionCases() {
  std::vector<AttentionCase> cases = {
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
  for (AttentionCase c : std::vector<AttentionCase>(cases)) {
    const bool plain =
        c.heads == c.kv_heads && !c.causal && c.past == 0 && c.lengths.empty() && c.cap == 0;
    if (!plain || c.type != DataType::kF32) continue;
    c.name = "products_" + c.name;
    c.products = true;
    cases.push_back(c);
  }
  return cases;
}

std::vector<AttentionCase> HalfAttentionCases() {
  std::vector<AttentionCase> cases = {
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
  for (const AttentionCase& c : AttentionCases()) {
    if (!c.products) cases.push_back(c);
  }
  for (AttentionCase& c : cases) {
    if (c.type == DataType::kF32) c.type = DataType::kBF16;
    if (c.value_size == 8) c.value_size = 16;
  }
  return cases;
}

}  // namespace quench::codegen
