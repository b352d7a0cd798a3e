#include "services/quantizer/equalize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "tests/support/graphs.h"

namespace quench::quantizer {
namespace {

using ::quench::testing::Add;
using ::quench::testing::CountOps;
using ::quench::testing::Difference;
using ::quench::testing::RandomTensor;

// Output channel c of a kernel (or a bias) times 1000^(c / (channels - 1)): a spread of a thousand.
Tensor Uneven(Tensor tensor) {
  const int64_t channels = tensor.dims()[0], run = tensor.size() / channels;
  auto* values = reinterpret_cast<float*>(tensor.mutable_bytes());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    values[i] *= static_cast<float>(
        std::pow(1000.0, static_cast<double>(i / run) / static_cast<double>(channels - 1)));
  }
  return tensor;
}

ValueId Conv(Graph& graph, ValueId x, const std::string& name, std::vector<int64_t> kernel,
             int64_t group, uint64_t seed, bool uneven = true) {
  const int64_t outputs = kernel[0];
  Tensor w = RandomTensor(kernel, seed), b = RandomTensor({outputs}, seed + 100);
  if (uneven) {
    w = Uneven(w);
    b = Uneven(b);
  }
  return Add(graph, "Conv",
             {x, graph.AddConstant(name + ".w", w), graph.AddConstant(name + ".b", b)},
             {{"group", group}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}}, name);
}

// A block as MobileNets have it: 1x1, activation, depthwise, activation, 1x1.
using Activation = std::function<ValueId(Graph&, ValueId, const std::string&)>;
Graph Block(const Activation& activation) {
  Graph graph;
  ValueId y = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 3, 6, 6}));
  y = Conv(graph, y, "expand", {8, 3, 1, 1}, 1, 1);
  y = activation(graph, y, "a1");
  y = Conv(graph, y, "depthwise", {8, 1, 3, 3}, 8, 2, false);
  y = activation(graph, y, "a2");
  y = Conv(graph, y, "project", {4, 8, 1, 1}, 1, 3, false);
  graph.outputs = {y};
  return graph;
}

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
    const Graph graph =
        Block([&](Graph& g, ValueId x, const std::string& name) { return Named(g, op, x, name); });
    const auto result = Equalize(graph);
    ASSERT_TRUE(result.ok()) << result.status();
    CheckEqualized(graph, *result, 2);
  }
}

TEST(Equalize, ClipGetsBoundsOfEachChannel) {
  const Graph graph = Block([](Graph& g, ValueId x, const std::string& name) {
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
  const Graph silu = Block([](Graph& g, ValueId x, const std::string& name) {
    const ValueId gate = Named(g, "Sigmoid", x, name + ".gate");
    return Add(g, "Mul", {gate, x}, {}, name);
  });
  auto result = Equalize(silu);
  ASSERT_TRUE(result.ok()) << result.status();
  CheckEqualized(silu, *result, 2);
  for (const char* op : {"HardSwish", "Swish"}) {
    const Graph graph =
        Block([&](Graph& g, ValueId x, const std::string& name) { return Named(g, op, x, name); });
    result = Equalize(graph);
    ASSERT_TRUE(result.ok()) << result.status();
    CheckEqualized(graph, *result, 2);
  }
}

TEST(Equalize, WhatOthersReadStays) {
  // The first activation is added to something else too; the second is an output.
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 3, 6, 6}));
  const ValueId a = Conv(graph, x, "one", {3, 3, 3, 3}, 1, 1);
  const ValueId b = Conv(graph, a, "two", {3, 3, 3, 3}, 1, 2);
  const ValueId c = Add(graph, "Add", {a, b}, {}, "sum");
  const ValueId d = Conv(graph, c, "three", {3, 3, 3, 3}, 1, 3);
  const ValueId e = Conv(graph, d, "four", {3, 3, 3, 3}, 1, 4);
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
  Graph graph =
      Block([](Graph& g, ValueId x, const std::string& name) { return Named(g, "Relu", x, name); });
  graph.stage = Stage::kQuantized;
  EXPECT_EQ(Equalize(graph).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quench::quantizer
