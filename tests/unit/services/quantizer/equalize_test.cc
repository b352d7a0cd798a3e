#include "services/quantizer/equalize.h"

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "tests/support/graphs.h"
#include "tests/unit/services/quantizer/support.h"

namespace quench::quantizer::equalize_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::CountOps;
using ::quench::testing::Difference;
using ::quench::testing::RandomTensor;

ValueId Named(Graph& graph, const std::string& op, ValueId x, const std::string& name) {
  return Add(graph, op, {x}, {}, name);
}

void CheckEqualized(const Graph& graph, const Equalized& result, int pairs) {
  EXPECT_EQ(result.pairs, pairs);
  EXPECT_TRUE(VerifyGraph(result.graph).ok()) << VerifyGraph(result.graph);
  EXPECT_GT(result.spread, 500);
  EXPECT_LT(result.remains, 60);
  for (uint64_t seed = 1; seed < 4; ++seed) EXPECT_LT(Difference(result.graph, graph, seed), 1e-5);
}

TEST(Equalize, ThroughWhatScalingGoesThrough) {
  for (const char* op : {"Relu", "LeakyRelu", "Identity"}) {
    const Graph graph = UnevenBlock(
        [&](Graph& g, ValueId x, const std::string& name) { return Named(g, op, x, name); });
    const auto result = Equalize(graph);
    ASSERT_TRUE(result.ok()) << result.status();
    CheckEqualized(graph, *result, 2);
  }
}

TEST(Equalize, ClipGetsBoundsOfEachChannel) {
  const Graph graph = UnevenBlock([](Graph& g, ValueId x, const std::string& name) {
    const ValueId low = g.AddConstant(name + ".low", Tensor::ScalarF32(0));
    const ValueId high = g.AddConstant(name + ".high", Tensor::ScalarF32(6));
    return Add(g, "Clip", {x, low, high}, {}, name);
  });
  const auto result = Equalize(graph);
  ASSERT_TRUE(result.ok()) << result.status();
  CheckEqualized(graph, *result, 2);
  EXPECT_EQ(CountOps(result->graph, "Clip"), 0);
  EXPECT_EQ(CountOps(result->graph, "Relu"), 2);
  EXPECT_EQ(CountOps(result->graph, "Min"), 2);
}

TEST(Equalize, GatesAreGivenTheUnscaledValue) {
  const Graph silu = UnevenBlock([](Graph& g, ValueId x, const std::string& name) {
    const ValueId gate = Named(g, "Sigmoid", x, name + ".gate");
    return Add(g, "Mul", {gate, x}, {}, name);
  });
  auto result = Equalize(silu);
  ASSERT_TRUE(result.ok()) << result.status();
  CheckEqualized(silu, *result, 2);
  for (const char* op : {"HardSwish", "Swish"}) {
    const Graph graph = UnevenBlock(
        [&](Graph& g, ValueId x, const std::string& name) { return Named(g, op, x, name); });
    result = Equalize(graph);
    ASSERT_TRUE(result.ok()) << result.status();
    CheckEqualized(graph, *result, 2);
  }
}

TEST(Equalize, WhatOthersReadStays) {
  // The first activation is added to something else too; the second is an output.
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 3, 6, 6}));
  const ValueId a = UnevenConv(graph, x, "one", {3, 3, 3, 3}, 1, 1);
  const ValueId b = UnevenConv(graph, a, "two", {3, 3, 3, 3}, 1, 2);
  const ValueId c = Add(graph, "Add", {a, b}, {}, "sum");
  const ValueId d = UnevenConv(graph, c, "three", {3, 3, 3, 3}, 1, 3);
  const ValueId e = UnevenConv(graph, d, "four", {3, 3, 3, 3}, 1, 4);
  graph.outputs = {d, e};
  const auto result = Equalize(graph);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->pairs, 0);
  EXPECT_EQ(Difference(result->graph, graph), 0);
}

TEST(Equalize, DeadChannelsAreLeftAlone) {
  Graph graph;
  ValueId y = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 2, 4, 4}));
  Tensor w = RandomTensor({4, 2, 1, 1}, 1);
  reinterpret_cast<float*>(w.mutable_bytes())[2] = 0;  // channel 1 is its bias only
  reinterpret_cast<float*>(w.mutable_bytes())[3] = 0;
  y = Add(graph, "Conv",
          {y, graph.AddConstant("w", w), graph.AddConstant("b", RandomTensor({4}, 2))}, {}, "one");
  y = Add(graph, "Relu", {y}, {}, "r");
  y = Add(graph, "Conv", {y, graph.AddConstant("v", RandomTensor({2, 4, 1, 1}, 3))}, {}, "two");
  graph.outputs = {y};
  const auto result = Equalize(graph);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->pairs, 1);
  EXPECT_LT(Difference(result->graph, graph), 1e-5);
}

TEST(Equalize, OnlyCanonicalModules) {
  Graph graph = UnevenBlock(
      [](Graph& g, ValueId x, const std::string& name) { return Named(g, "Relu", x, name); });
  graph.stage = Stage::kQuantized;
  EXPECT_EQ(Equalize(graph).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quench::quantizer::equalize_test
