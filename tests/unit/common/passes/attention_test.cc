// Graphs that the pass takes for attention, and the places of heads in them.
#include <gtest/gtest.h>

#include <limits>

#include "common/ops/op.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::attention_test {
namespace {

constexpr int64_t kSteps = 6, kHeads = 2, kSize = 4, kWidth = kHeads * kSize;

ValueId Ints(Graph& graph, const std::vector<int64_t>& values) {
  return graph.AddConstant("ints", Tensor::I64(values));
}
ValueId Permuted(Graph& graph, ValueId x, const std::vector<int64_t>& perm) {
  return Add(graph, "Transpose", {x}, {{"perm", perm}});
}

// Products of heads that are apart; `masked` puts the mask on the scores.
ValueId Attend(Graph& graph, ValueId q, ValueId k, ValueId v,
               const std::function<ValueId(ValueId)>& masked = nullptr) {
  ValueId scores = Add(graph, "MatMul", {q, Permuted(graph, k, {0, 1, 3, 2})});
  if (masked) scores = masked(scores);
  return Add(graph, "MatMul", {Add(graph, "Softmax", {scores}, {{"axis", int64_t{-1}}}), v});
}

// As the graph ends, with one q.attention or without. By reference: what makes `output` adds to the graph.
Graph Fused(const Graph& built, ValueId output, int expected, double tolerance = 1e-5) {
  Graph graph = built;
  graph.outputs.push_back(output);
  const absl::Status inferred = ops::InferGraph(graph);
  EXPECT_TRUE(inferred.ok()) << inferred;
  Graph after = After("attention", graph, {}, tolerance);
  EXPECT_EQ(CountOps(after, "q.attention"), expected);
  return after;
}

const Node& AttentionOf(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.op == "q.attention") return node;
  }
  return graph.nodes.at(0);
}

ValueId Input(Graph& graph, const std::string& name, std::vector<Dim> dims) {
  return graph.AddInput(name, Type::Tensor(DataType::kF32, std::move(dims)));
}

// Queries, keys and values of one tensor in the ways that exporters take them apart.
TEST(AttentionPassTest, ReadsThroughWhatTakesHeadsApart) {
  const auto heads = [](Graph& graph, ValueId part) {
    return Permuted(graph, Add(graph, "Reshape", {part, Ints(graph, {0, 0, kHeads, kSize})}),
                    {0, 2, 1, 3});
  };
  using Take = std::function<ValueId(Graph&, ValueId x, int64_t i)>;
  const std::vector<std::pair<std::string, Take>> ways = {
      {"slices",
       [&](Graph& g, ValueId x, int64_t i) {
         return heads(g,
                      Add(g, "Slice",
                          {x, Ints(g, {i * kWidth}), Ints(g, {(i + 1) * kWidth}), Ints(g, {2})}));
       }},
      {"a slice from the end",
       [&](Graph& g, ValueId x, int64_t i) {
         return heads(g, Add(g, "Slice",
                             {x, Ints(g, {(i - 3) * kWidth}),
                              Ints(g, {i == 2 ? 1000 : (i - 2) * kWidth}), Ints(g, {-1})}));
       }},
      {"an index",
       [&](Graph& g, ValueId x, int64_t i) {
         const ValueId cut = Add(g, "Reshape", {x, Ints(g, {0, 0, 3, kHeads, kSize})});
         const ValueId index = g.AddConstant("i", Tensor::I64({i}).Reshaped({}));
         return Add(g, "Gather", {Permuted(g, cut, {2, 0, 3, 1, 4}), index},
                    {{"axis", int64_t{0}}});
       }},
      {"a slice that is squeezed",
       [&](Graph& g, ValueId x, int64_t i) {
         const ValueId cut = Add(g, "Reshape", {x, Ints(g, {0, 0, 3, kHeads, kSize})});
         const ValueId one = Add(g, "Slice", {cut, Ints(g, {i}), Ints(g, {i + 1}), Ints(g, {2})});
         return Permuted(g, Add(g, "Squeeze", {one, Ints(g, {2})}), {0, 2, 1, 3});
       }},
  };
  for (const auto& [name, take] : ways) {
    SCOPED_TRACE(name);
    Graph graph;
    const ValueId x = Input(graph, "x", {2, kSteps, 3 * kWidth});
    const ValueId q = take(graph, x, 0), k = take(graph, x, 1), v = take(graph, x, 2);
    const Graph after = Fused(graph, Attend(graph, q, k, v), 1);
    const Node& node = AttentionOf(after);
    EXPECT_EQ(node.inputs, (std::vector<ValueId>(3, after.inputs[0])));
    EXPECT_EQ(node.Ints("offsets"), (std::vector<int64_t>{0, kWidth, 2 * kWidth}));
    EXPECT_EQ(after.nodes.size(), 1U);
  }
}

// Heads of another order, or steps first, are moved as before.
TEST(AttentionPassTest, MovesWhatLiesOtherwise) {
  Graph graph;
  const auto heads = [&](const std::string& name) {
    const ValueId x = Input(graph, name, {kSteps, 2, kWidth});  // steps first
    return Permuted(graph, Add(graph, "Reshape", {x, Ints(graph, {0, 0, kHeads, kSize})}),
                    {1, 2, 0, 3});
  };
  const ValueId q = heads("q"), k = heads("k"), v = heads("v");
  Fused(graph, Attend(graph, q, k, v), 1);
}

TEST(AttentionPassTest, OneHeadOfRankThree) {
  Graph graph;
  const ValueId q = Input(graph, "q", {3, kSteps, kSize}), k = Input(graph, "k", {3, 5, kSize});
  const ValueId v = Input(graph, "v", {3, 5, 7});
  const ValueId scores = Add(graph, "MatMul", {q, Permuted(graph, k, {0, 2, 1})});
  const Graph after = Fused(
      graph, Add(graph, "MatMul", {Add(graph, "Softmax", {scores}, {{"axis", int64_t{2}}}), v}), 1);
  EXPECT_EQ(AttentionOf(after).Int("heads", 0), 1);
}

Tensor Triangle(int64_t rows, int64_t columns, float out, bool strict = false) {
  Tensor tensor = Tensor::Zeros(DataType::kF32, {rows, columns});
  auto* values = reinterpret_cast<float*>(tensor.mutable_bytes());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j)
      values[i * columns + j] = j > i - (strict ? 1 : 0) ? out : 0;
  }
  return tensor;
}

TEST(AttentionPassTest, TrianglesAreCausal) {
  const float infinity = std::numeric_limits<float>::infinity();
  struct Form {
    std::string name;
    Tensor mask;
    bool causal;
  };
  Tensor hole = Triangle(9, 9, -infinity);
  reinterpret_cast<float*>(hole.mutable_bytes())[9] = -1;
  for (const Form& form :
       {Form{"infinite", Triangle(9, 9, -infinity), true},
        Form{"least", Triangle(9, 9, std::numeric_limits<float>::lowest()), true},
        Form{"a penalty", Triangle(9, 9, -1e4F), false},
        Form{"of the next row", Triangle(9, 9, -infinity, true), false},
        Form{"with a hole", hole, false}}) {
    SCOPED_TRACE(form.name);
    Graph graph;
    const std::vector<Dim> dims = {1, kHeads, kSteps, kSize};
    const ValueId q = Input(graph, "q", dims), k = Input(graph, "k", dims),
                  v = Input(graph, "v", dims);
    const ValueId all = graph.AddConstant("mask", form.mask);
    const auto masked = [&](ValueId scores) {
      const ValueId mask =
          Add(graph, "Slice",
              {all, Ints(graph, {0, 0}), Ints(graph, {kSteps, kSteps}), Ints(graph, {0, 1})});
      return Add(graph, "Add", {scores, mask});
    };
    graph.outputs.push_back(Attend(graph, q, k, v, masked));
    ASSERT_TRUE(ops::InferGraph(graph).ok());
    PassOptions options;
    const Graph after = *RunPass(*FindPass("attention"), graph, options, {});
    ASSERT_EQ(CountOps(after, "q.attention"), 1);
    EXPECT_EQ(AttentionOf(after).Int("causal", 0), form.causal ? 1 : 0);
    EXPECT_EQ(AttentionOf(after).inputs.size(), form.causal ? 3U : 4U);
  }
}

// As in GPT-2: the slice of a run may be shorter than its scores, as far as types tell.
TEST(AttentionPassTest, TrianglesOfAnySize) {
  Graph graph;
  const Dim steps = Dim::OfSymbol(graph.symbols->AddInput("steps", {0, 2}, {1, 1 << 20}));
  const std::vector<Dim> dims = {1, kHeads, steps, kSize};
  const ValueId q = Input(graph, "q", dims), k = Input(graph, "k", dims),
                v = Input(graph, "v", dims);
  Tensor triangle = Tensor::Zeros(DataType::kBool, {1, 1, 80, 80});
  for (int64_t i = 0; i < 80; ++i) {
    for (int64_t j = 0; j <= i; ++j) triangle.mutable_bytes()[i * 80 + j] = std::byte{1};
  }
  const ValueId all = graph.AddConstant("triangle", triangle);
  const ValueId least = graph.AddConstant("least", Tensor::ScalarF32(-3e38F));
  const ValueId shape = Add(graph, "Shape", {q});
  const ValueId end = Add(graph, "Slice", {shape, Ints(graph, {2}), Ints(graph, {3})});
  const ValueId y = Attend(graph, q, k, v, [&](ValueId scores) {
    ValueId mask = all;
    for (const int64_t axis : {2, 3})
      mask = Add(graph, "Slice", {mask, Ints(graph, {0}), end, Ints(graph, {axis})});
    return Add(graph, "Where", {mask, scores, least});
  });
  const Graph after = Fused(graph, y, 1);
  EXPECT_EQ(AttentionOf(after).Int("causal", 0), 1);
  EXPECT_EQ(AttentionOf(after).inputs.size(), 3U);
}

// A mask that is the same for all queries is not a triangle, though its corner looks like one.
TEST(AttentionPassTest, RowsAreNoTriangles) {
  Tensor one = Tensor::Zeros(DataType::kBool, {1, 1, 1, 1});
  one.mutable_bytes()[0] = std::byte{1};
  Tensor row = Tensor::Zeros(DataType::kBool, {1, 1, 1, kSteps});
  row.mutable_bytes()[0] = std::byte{1};
  Tensor nine = Tensor::Zeros(DataType::kBool, {1, 1, 9, 9});
  for (int64_t i = 0; i < 9; ++i) {
    for (int64_t j = 0; j <= i; ++j) nine.mutable_bytes()[i * 9 + j] = std::byte{1};
  }
  for (const Tensor& tensor : {one, row, nine}) {
    Graph graph;
    const std::vector<Dim> dims = {1, kHeads, kSteps, kSize};
    const ValueId q = Input(graph, "q", dims), k = Input(graph, "k", dims),
                  v = Input(graph, "v", dims);
    ValueId mask = graph.AddConstant("mask", tensor);
    if (tensor.size() == 81)
      mask = Add(graph, "Slice",
                 {mask, Ints(graph, {0, 0}), Ints(graph, {1, kSteps}), Ints(graph, {2, 3})});
    const ValueId least = graph.AddConstant("least", Tensor::ScalarF32(-3e38F));
    graph.outputs.push_back(Attend(graph, q, k, v, [&](ValueId scores) {
      return Add(graph, "Where", {mask, scores, least});
    }));
    ASSERT_TRUE(ops::InferGraph(graph).ok());
    const Graph after = After("attention", graph);
    for (const Node& node : after.nodes) EXPECT_EQ(node.Int("causal", 0), 0);
  }
}

// A mask may have more batches than the product that it is added to.
TEST(AttentionPassTest, LeavesMasksThatMakeMoreOfTheScores) {
  for (const std::vector<Dim>& dims : {std::vector<Dim>{2, 1, kSteps, kSteps}, {3, kSteps}}) {
    Graph graph;
    const Dim steps = dims.size() == 2 ? 1 : kSteps;
    const ValueId q = Input(graph, "q", {1, kHeads, steps, kSize});
    const ValueId k = Input(graph, "k", {1, kHeads, kSteps, kSize});
    const ValueId v = Input(graph, "v", {1, kHeads, kSteps, kSize});
    const ValueId mask = Input(graph, "mask", dims);
    Fused(graph,
          Attend(graph, q, k, v, [&](ValueId scores) { return Add(graph, "Add", {scores, mask}); }),
          0);
  }
}

// Products of rank 4 are heads already: as many products as there were.
TEST(AttentionPassTest, MergesProductsOfRowsAlone) {
  for (const bool rows : {true, false}) {
    Graph graph;
    const ValueId x = rows ? Input(graph, "x", {1, kSteps, kWidth})
                           : Input(graph, "x", {1, kHeads, kSteps, kWidth});
    std::vector<ValueId> parts;
    for (const uint64_t seed : {1U, 2U, 3U}) {
      const ValueId w = graph.AddConstant("w", RandomTensor({kWidth, kWidth}, seed));
      ValueId part = Add(graph, "MatMul", {x, w});
      if (rows) {
        part = Add(graph, "Reshape", {part, Ints(graph, {0, 0, kHeads, kSize})});
        part = Permuted(graph, part, {0, 2, 1, 3});
      }
      parts.push_back(part);
    }
    const Graph after = Fused(graph, Attend(graph, parts[0], parts[1], parts[2]), 1);
    EXPECT_EQ(CountOps(after, "MatMul"), rows ? 1 : 3);
  }
}

// As --bfloat16 leaves it: a softmax in f32 between products of bf16, scaled and masked on either side of the Cast.
TEST(AttentionPassTest, CastsAroundTheSoftmaxGo) {
  const auto cast = [](Graph& graph, ValueId id, DataType to) {
    return Add(graph, "Cast", {id}, {{"to", static_cast<int64_t>(to)}});
  };
  for (const bool scaled_in_f32 : {true, false}) {
    Graph graph;
    ValueId parts[3];
    const std::vector<Dim> dims = {1, kHeads, kSteps, kSize};
    for (ValueId& part : parts) part = cast(graph, Input(graph, "x", dims), DataType::kBF16);
    const ValueId k =
        Add(graph, "Transpose", {parts[1]}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    ValueId scores = Add(graph, "MatMul", {parts[0], k});
    if (scaled_in_f32) scores = cast(graph, scores, DataType::kF32);
    const DataType type = scaled_in_f32 ? DataType::kF32 : DataType::kBF16;
    const std::vector<float> half = {0.5F};
    scores = Add(graph, "Mul", {scores, graph.AddConstant("half", Tensor::Floats(type, {}, half))});
    const ValueId mask = Input(graph, "mask", {kSteps, kSteps});
    scores = Add(graph, "Add", {scores, scaled_in_f32 ? mask : cast(graph, mask, type)});
    if (!scaled_in_f32) scores = cast(graph, scores, DataType::kF32);
    const ValueId weights = Add(graph, "Softmax", {scores}, {{"axis", int64_t{-1}}});
    const ValueId mix = Add(graph, "MatMul", {cast(graph, weights, DataType::kBF16), parts[2]});
    constexpr double kRoundings = 0x1p-6;  // of scores and weights to bf16, which go
    Fused(graph, cast(graph, mix, DataType::kF32), 1, kRoundings);
  }
}

TEST(AttentionPassTest, LeavesWhatIsReadElsewhereOrIsNone) {
  const std::vector<Dim> dims = {1, kHeads, kSteps, kSize};
  {  // scores that somebody else reads
    Graph graph;
    const ValueId q = Input(graph, "q", dims), k = Input(graph, "k", dims),
                  v = Input(graph, "v", dims);
    const ValueId y = Attend(graph, q, k, v, [&](ValueId scores) {
      graph.outputs.push_back(scores);
      return scores;
    });
    Fused(graph, y, 0);
  }
  {  // a mask that is scaled too
    Graph graph;
    const ValueId q = Input(graph, "q", dims), k = Input(graph, "k", dims),
                  v = Input(graph, "v", dims);
    const ValueId mask = Input(graph, "mask", {kSteps, kSteps});
    const ValueId two = graph.AddConstant("two", Tensor::ScalarF32(2));
    const ValueId y = Attend(graph, q, k, v, [&](ValueId scores) {
      return Add(graph, "Mul", {Add(graph, "Add", {scores, mask}), two});
    });
    Fused(graph, y, 0);
  }
  {  // a softmax over queries
    Graph graph;
    const ValueId q = Input(graph, "q", dims), k = Input(graph, "k", dims),
                  v = Input(graph, "v", dims);
    const ValueId scores = Add(graph, "MatMul", {q, Permuted(graph, k, {0, 1, 3, 2})});
    Fused(graph, Add(graph, "MatMul", {Add(graph, "Softmax", {scores}, {{"axis", int64_t{2}}}), v}),
          0);
  }
  {  // values of everything are wanted
    Graph graph;
    const ValueId q = Input(graph, "q", dims), k = Input(graph, "k", dims),
                  v = Input(graph, "v", dims);
    graph.outputs.push_back(Attend(graph, q, k, v));
    ASSERT_TRUE(ops::InferGraph(graph).ok());
    PassOptions options;
    options.whole_values = true;
    EXPECT_EQ(CountOps(*RunPass(*FindPass("attention"), graph, options, {}), "q.attention"), 0);
  }
}

}  // namespace
}  // namespace quench::passes::attention_test
