#include "services/analyser/tile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "common/ir/verify.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"

namespace quench::analyser::tile_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::CountOps;
using ::quench::testing::HasSubstr;
using ::quench::testing::RandomTensor;

constexpr double kLargestError = 1e-5;

// Every product of the graph is within the limits: looked at, not taken from the report.
void ExpectWithin(const Graph& graph, const TileLimits& limits) {
  ForEachGraph(graph, [&](const Graph& each) {
    for (const Node& node : each.nodes) {
      if (node.op != "Gemm" && node.op != "MatMul") continue;
      const std::vector<Dim>& a = each.value(node.inputs[0]).type.dims;
      const std::vector<Dim>& b = each.value(node.inputs[1]).type.dims;
      const bool trans_a = node.Int("transA", 0) != 0, trans_b = node.Int("transB", 0) != 0;
      ASSERT_FALSE(a.empty() || b.empty()) << node.name;
      const Dim k = trans_a ? a[0] : a.back();
      const Dim m = a.size() < 2 ? Dim(1) : trans_a ? a[1] : a[a.size() - 2];
      const Dim n = b.size() < 2 ? Dim(1) : trans_b ? b[0] : b.back();
      const auto most = [&](Dim dim) {
        return dim.is_static() ? dim.value() : each.symbols->BoundsOf(dim).max;
      };
      EXPECT_LE(most(m), limits.m) << node.name;
      EXPECT_LE(most(n), limits.n) << node.name;
      EXPECT_LE(most(k), limits.k) << node.name;
    }
  });
}

void ExpectSame(const Graph& graph, const TileLimits& limits, int64_t samples,
                const std::string& what) {
  const auto tiled = TileGraph(graph, limits);
  ASSERT_TRUE(tiled.ok()) << what << ": " << tiled.status();
  EXPECT_TRUE(VerifyGraph(tiled->graph).ok()) << what << ": " << VerifyGraph(tiled->graph);
  ExpectWithin(tiled->graph, limits);
  ASSERT_EQ(tiled->graph.outputs.size(), graph.outputs.size()) << what;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Value& before = graph.value(graph.outputs[i]);
    const Value& after = tiled->graph.value(tiled->graph.outputs[i]);
    EXPECT_EQ(after.name, before.name) << what;
    EXPECT_EQ(after.type, before.type) << what;
  }
  const auto error = LargestError(graph, tiled->graph, samples, 1);
  ASSERT_TRUE(error.ok()) << what << ": " << error.status();
  EXPECT_LE(*error, kLargestError) << what;
}

Type F32(std::vector<Dim> dims) { return Type::Tensor(DataType::kF32, std::move(dims)); }

TEST(TileTest, ProductsOfTheLabReport) {
  const TileLimits limits = {64, 64, 64};
  const Graph narrow = GemmGraph(32, 64, 128);
  const Tiled two = TileGraph(narrow, limits).value();
  EXPECT_EQ(CountOps(two.graph, "MatMul"), 2);
  EXPECT_EQ(CountOps(two.graph, "Gemm"), 0);
  EXPECT_EQ(CountOps(two.graph, "Split"), 1);
  const Tiled eight = TileGraph(GemmGraph(128, 128, 128), limits).value();
  EXPECT_EQ(CountOps(eight.graph, "MatMul"), 8);
  EXPECT_EQ(eight.report.products[0].products(), 8);
  ExpectSame(narrow, limits, 5, "32x64x128");
  ExpectSame(GemmGraph(128, 128, 128), limits, 2, "128x128x128");
}

TEST(TileTest, GemmOfAnySizeTransposedScaledAndWithAnyBias) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const auto size = [&] { return static_cast<int64_t>(random() % 20 + 1); };
    const int64_t m = size(), n = size(), k = size();
    const bool trans_a = random() % 2 == 0, trans_b = random() % 2 == 0;
    Graph graph;
    std::vector<ValueId> inputs = {
        graph.AddInput("a", trans_a ? F32({k, m}) : F32({m, k})),
        random() % 2 == 0
            ? graph.AddInput("b", trans_b ? F32({n, k}) : F32({k, n}))
            : graph.AddConstant(
                  "b", RandomTensor(
                           trans_b ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n}, 2))};
    const std::vector<std::vector<Dim>> biases = {{m, n}, {n}, {1, n}, {m, 1}, {}};
    const size_t bias = random() % (biases.size() + 1);
    if (bias < biases.size()) inputs.push_back(graph.AddInput("c", F32(biases[bias])));
    std::map<std::string, Attribute> attributes = {{"transA", int64_t{trans_a}},
                                                   {"transB", int64_t{trans_b}}};
    if (random() % 2 == 0) attributes["alpha"] = 0.5;
    if (random() % 2 == 0) attributes["beta"] = -2.0;
    graph.outputs = {Add(graph, "Gemm", inputs, attributes)};
    const TileLimits limits = {size(), size(), size()};
    ExpectSame(graph, limits, 1,
               fmt::format("{}: {}x{}x{}, limits {},{},{}, bias {}", i, m, k, n, limits.m, limits.n,
                           limits.k, bias));
  }
}

TEST(TileTest, MatMulOfAnyRankAndBatch) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200; ++i) {
    const auto size = [&] { return static_cast<int64_t>(random() % 12 + 1); };
    const int64_t m = size(), n = size(), k = size();
    const auto operand = [&](Dim row, Dim column, bool vector_row) {
      const size_t rank = random() % 4 + 1;
      std::vector<Dim> dims = {row, column};
      if (rank == 1) dims = {vector_row ? column : row};
      // Batches of 1 and of 3 broadcast.
      for (size_t axis = 2; axis < rank; ++axis)
        dims.insert(dims.begin(), random() % 2 == 0 ? 1 : 3);
      return F32(dims);
    };
    Graph graph;
    const ValueId a = graph.AddInput("a", operand(m, k, true));
    const ValueId b = graph.AddInput("b", operand(k, n, false));
    graph.outputs = {Add(graph, "MatMul", {a, b})};
    const TileLimits limits = {size(), size(), size()};
    ExpectSame(graph, limits, 1, fmt::format("{}", i));
  }
}

TEST(TileTest, IntegersStayExactAndSymbolicSizesWithinALimitAreLeft) {
  Graph whole;
  const ValueId a = whole.AddInput("a", Type::Tensor(DataType::kI32, {5, 7}));
  const ValueId b = whole.AddInput("b", Type::Tensor(DataType::kI32, {7, 5}));
  const ValueId c = whole.AddInput("c", Type::Tensor(DataType::kI32, {5}));
  whole.outputs = {Add(whole, "Gemm", {a, b, c}, {{"beta", 3.0}})};
  ExpectSame(whole, {2, 3, 4}, 3, "i32");

  Graph graph;
  const Dim batch = Dim::OfSymbol(graph.symbols->AddInput("batch", {0, 0}, {1, 8}));
  const ValueId x = graph.AddInput("x", F32({batch, 10}));
  const ValueId w = graph.AddInput("w", F32({10, 6}));
  graph.outputs = {Add(graph, "MatMul", {x, w}, {}, "head")};
  ExpectSame(graph, {8, 4, 4}, 1, "batch");
  const absl::Status status = TileGraph(graph, {4, 4, 4}).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("node `head` (MatMul): m is `batch`, which must be fixed or at most 4"));
}

TEST(TileTest, ProductsOfBodiesAreCutToo) {
  auto body = std::make_shared<Graph>();
  body->name = "part";
  const ValueId a = body->AddInput("a", F32({9, 5}));
  const ValueId b = body->AddInput("b", F32({5, 9}));
  body->outputs = {Add(*body, "MatMul", {a, b})};
  Graph graph;
  body->symbols = graph.symbols;
  const std::vector<ValueId> inputs = {graph.AddInput("x", F32({9, 5})),
                                       graph.AddInput("y", F32({5, 9}))};
  graph.outputs = {Add(graph, "q.partition", inputs,
                       {{"backend", std::string("npu")}, {"body", GraphPtr(body)}})};
  ExpectSame(graph, {4, 4, 4}, 2, "partition");
}

TEST(TileTest, WhatFitsStaysAndTheRestIsCounted) {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32({1, 1, 4, 4}));
  const ValueId w = graph.AddConstant("w", RandomTensor({1, 1, 3, 3}, 1));
  const ValueId conv = Add(graph, "Conv", {x, w});
  graph.outputs = {Add(graph, "MatMul", {conv, conv}, {}, "small")};
  const Tiled tiled = TileGraph(graph, {2, 2, 2}).value();
  EXPECT_EQ(CountOps(tiled.graph, "MatMul"), 1);
  EXPECT_EQ(CountOps(tiled.graph, "Split"), 0);
  EXPECT_EQ(tiled.report.others.at("Conv"), 1);
  EXPECT_THAT(ToTable(tiled.report), HasSubstr("0 of 1 products cut"));
  EXPECT_THAT(ToJson(tiled.report), HasSubstr("\"tiles_m\": 1"));
}

TEST(TileTest, ImpossibleLimitsAreRefused) {
  const Graph graph = GemmGraph(1000, 1000, 1000);
  EXPECT_THAT(std::string(TileGraph(graph, {0, 4, 4}).status().message()),
              HasSubstr("each must be at least 1"));
  EXPECT_THAT(std::string(TileGraph(graph, {1, 1, 1}).status().message()),
              HasSubstr("more than 262144 products"));
}

}  // namespace
}  // namespace quench::analyser::tile_test
