#include "services/quantizer/split_outliers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "services/quantizer/channel_regions.h"
#include "services/quantizer/quantize.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/quantizer/support.h"

namespace quench::quantizer::split_outliers_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::Difference;
using ::quench::testing::HasSubstr;
using ::quench::testing::RandomTensor;

// first -> relu -> depthwise -> pool -> second, whose weights for channel 5 are `outlier` times as
// large; `reader` adds one more convolution that reads the pooled channels, without outliers.
Graph WithOutlier(int64_t channels, float outlier, bool reader = false) {
  Graph graph;
  graph.name = "outlier";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 3, 8, 8}));
  const auto conv = [&](ValueId in, const std::string& name, const Tensor& kernel, int64_t group) {
    const ValueId bias =
        graph.AddConstant(name + ".b", RandomTensor({kernel.dims()[0]}, kernel.dims()[0]));
    return Add(graph, "Conv", {in, graph.AddConstant(name + ".k", kernel), bias},
               {{"group", group}}, name);
  };
  const ValueId first = conv(x, "first", RandomTensor({channels, 3, 3, 3}, 1), 1);
  const ValueId relu = Add(graph, "Relu", {first}, {}, "relu");
  const ValueId deep = conv(relu, "deep", RandomTensor({channels, 1, 3, 3}, 2), channels);
  const ValueId pooled =
      Add(graph, "MaxPool", {deep}, {{"kernel_shape", std::vector<int64_t>{2, 2}}}, "pool");
  Tensor kernel = RandomTensor({4, channels, 1, 1}, 3);
  auto* values = reinterpret_cast<float*>(kernel.mutable_bytes());
  for (int64_t o = 0; o < 4; ++o) values[o * channels + 5] *= outlier;
  graph.outputs = {conv(pooled, "second", kernel, 1)};
  if (reader)
    graph.outputs.push_back(conv(pooled, "third", RandomTensor({2, channels, 1, 1}, 4), 1));
  return graph;
}

TEST(SplitOutliers, KeepsTheFunctionAndNarrowsTheRange) {
  const Graph graph = WithOutlier(16, 20);
  const auto split = SplitOutliers(graph, {0.25});
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_TRUE(VerifyGraph(split->graph).ok()) << VerifyGraph(split->graph);
  EXPECT_LE(Difference(graph, split->graph), 1e-5);
  ASSERT_EQ(split->layers.size(), 1u);
  EXPECT_EQ(split->layers[0].node, "first");
  EXPECT_EQ(split->layers[0].channels, 16);
  EXPECT_EQ(split->layers[0].copies, 4);
  EXPECT_NEAR(split->layers[0].spared, 5, 1e-3);  // the outlier is there five times
  EXPECT_EQ(split->graph.value(split->graph.outputs[0]).name, "second");
}

// Per tensor, 8 bits: the other channels have a finer grid.
TEST(SplitOutliers, QuantizationLosesLess) {
  const Graph graph = WithOutlier(16, 30);
  const auto noise = [&](const Graph& module) {
    const Statistics statistics = Seen(module);
    const auto quantized = Quantize(module, &statistics, {});
    EXPECT_TRUE(quantized.ok()) << quantized.status();
    return quantized.ok() ? Difference(graph, quantized->graph) : 1e9;
  };
  const auto split = SplitOutliers(graph, {0.5});
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_LT(noise(split->graph), noise(graph));
}

TEST(SplitOutliers, ManyChannelsComeInEights) {
  const auto split = SplitOutliers(WithOutlier(36, 20), {0.02});
  ASSERT_TRUE(split.ok()) << split.status();
  ASSERT_EQ(split->layers.size(), 1u);
  EXPECT_EQ(split->layers[0].copies, 4);  // 40 in all
}

TEST(SplitOutliers, WhatWouldNotGainIsLeftAlone) {
  for (const Graph& graph : {WithOutlier(16, 1), WithOutlier(16, 20, /*reader=*/true)}) {
    const auto split = SplitOutliers(graph, {0.07});
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_TRUE(split->layers.empty());
    EXPECT_EQ(Difference(graph, split->graph), 0);
  }
}

TEST(SplitOutliers, SharesAndStagesAreChecked) {
  for (const double share : {0.0, -1.0, 0.6, std::nan("")}) {
    EXPECT_PRED1(HasSubstr("must be above 0 and at most 0.5"),
                 MessageOf(SplitOutliers(WithOutlier(16, 20), {share}).status()));
  }
  Graph graph = WithOutlier(16, 20);
  graph.stage = Stage::kQuantized;
  EXPECT_PRED1(HasSubstr("outliers are split at `canonical`"),
               MessageOf(SplitOutliers(graph).status()));
}

}  // namespace
}  // namespace quench::quantizer::split_outliers_test
