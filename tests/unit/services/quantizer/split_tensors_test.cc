#include "services/quantizer/split_tensors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "common/runner/fidelity.h"
#include "services/quantizer/quantize.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/quantizer/support.h"

namespace quench::quantizer::split_tensors_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::CountOps;
using ::quench::testing::Difference;
using ::quench::testing::ElementsAre;
using ::quench::testing::HasSubstr;
using ::quench::testing::RandomInputsFor;
using ::quench::testing::RandomTensor;

ValueId Relu(Graph& graph, ValueId x, const std::string& name) {
  return Add(graph, "Relu", {x}, {}, name);
}
ValueId Clip6(Graph& graph, ValueId x, const std::string& name) {
  const ValueId low = graph.AddConstant(name + ".low", Tensor::ScalarF32(0));
  const ValueId high = graph.AddConstant(name + ".high", Tensor::ScalarF32(6));
  return Add(graph, "Clip", {x, low, high}, {}, name);
}
ValueId Silu(Graph& graph, ValueId x, const std::string& name) {
  return Add(graph, "Mul", {x, Add(graph, "Sigmoid", {x}, {}, name + ".gate")}, {}, name);
}

class SplitTensorsTest : public ::testing::TestWithParam<std::pair<std::string, Activation>> {};

// The first convolution, the depthwise one and the last become as many as there are parts.
TEST_P(SplitTensorsTest, KeepsTheFunction) {
  const Graph graph = UnevenBlock(GetParam().second);
  for (const int parts : {2, 3}) {
    SplitOptions options;
    options.parts = parts;
    const auto split = SplitTensors(graph, options);
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_TRUE(VerifyGraph(split->graph).ok()) << VerifyGraph(split->graph);
    EXPECT_EQ(split->graph.metadata.at("is_split_tensors"), "true");
    ASSERT_EQ(split->layers.size(), 1);
    EXPECT_EQ(split->layers[0].node, "expand");
    EXPECT_THAT(split->layers[0].channels, ElementsAre(4, 4));  // they come in fours at least
    EXPECT_LT(split->layers[0].bits_after, split->layers[0].bits_before - 1);
    EXPECT_EQ(CountOps(split->graph, "Conv"), 6);
    EXPECT_LE(Difference(graph, split->graph), 1e-5);
    EXPECT_EQ(split->graph.value(split->graph.outputs[0]).name, "project");
  }
}

using Named = std::pair<std::string, Activation>;
INSTANTIATE_TEST_SUITE_P(Activations, SplitTensorsTest,
                         ::testing::Values(Named("Relu", Relu), Named("Relu6", Clip6),
                                           Named("SiLU", Silu)),
                         [](const auto& test) { return test.param.first; });

double Sqnr(const Graph& graph) {
  const Statistics statistics = Seen(graph);
  const auto quantized = Quantize(graph, &statistics, {});
  EXPECT_TRUE(quantized.ok()) << quantized.status();
  if (!quantized.ok()) return -1;
  NoiseSums sums;
  for (uint64_t seed = 1; seed < 4; ++seed) {
    const std::vector<Tensor> inputs = RandomInputsFor(graph, seed);
    sums.Add(ops::Evaluate(graph, inputs).value()[0],
             ops::Evaluate(quantized->graph, inputs).value()[0]);
  }
  return sums.SqnrDb();
}

// Channels of a range of 1 to 1000, of which the next layer reads each as if it were of range 1.
Graph HostilePair(int64_t channels) {
  Graph graph;
  ValueId y = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 3, 6, 6}));
  y = UnevenConv(graph, y, "first", {channels, 3, 3, 3}, 1, 1);
  y = Relu(graph, y, "a");
  std::vector<float> weights;
  const Tensor random = RandomTensor({4, channels, 1, 1}, 5);
  for (int64_t i = 0; i < random.size(); ++i) {
    const double place = static_cast<double>(i % channels) / static_cast<double>(channels - 1);
    weights.push_back(static_cast<float>(random.FloatAt(i) / std::pow(1000.0, place)));
  }
  const ValueId w =
      graph.AddConstant("w2", Tensor::Of(DataType::kF32, {4, channels, 1, 1}, weights));
  graph.outputs = {Add(graph, "Conv", {y, w}, {}, "second")};
  return graph;
}

TEST(SplitTensors, GivesBackWhatOneRangeCosts) {
  const Graph graph = HostilePair(32);
  double before = Sqnr(graph);
  EXPECT_LT(before, 12);
  for (const int parts : {2, 4}) {
    SplitOptions options;
    options.parts = parts;
    const auto split = SplitTensors(graph, options);
    ASSERT_TRUE(split.ok()) << split.status();
    ASSERT_EQ(split->layers.size(), 1);
    EXPECT_EQ(static_cast<int>(split->layers[0].channels.size()), parts);
    for (const int64_t channels : split->layers[0].channels) EXPECT_EQ(channels % 8, 0);
    const double after = Sqnr(split->graph);
    EXPECT_GT(after, before + 4) << parts;
    before = after;
  }
}

// Channels that somebody else reads too, or that are seen from outside, stay together.
TEST(SplitTensors, LeavesWhatOthersRead) {
  Graph graph = HostilePair(16);
  graph.outputs.push_back(*graph.FindValue("a"));
  auto split = SplitTensors(graph);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_TRUE(split->layers.empty());
  EXPECT_EQ(CountOps(split->graph, "Conv"), 2);
  graph = HostilePair(16);
  const ValueId a = *graph.FindValue("a");
  graph.outputs.push_back(Add(graph, "Softmax", {a}, {{"axis", int64_t{1}}}, "s"));
  split = SplitTensors(graph);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_TRUE(split->layers.empty());
}

// Two sorts of channels make two parts, however many there may be.
TEST(SplitTensors, CutsOnlyWhereItGains) {
  Graph graph;
  ValueId y = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 1, 6, 6}));
  std::vector<float> weights(32, 1);
  for (size_t c = 16; c < 32; ++c) weights[c] = 1000;
  const ValueId w = graph.AddConstant("w", Tensor::Of(DataType::kF32, {32, 1, 1, 1}, weights));
  y = Relu(graph, Add(graph, "Conv", {y, w}, {}, "first"), "a");
  const ValueId v = graph.AddConstant("v", RandomTensor({4, 32, 1, 1}, 1));
  graph.outputs = {Add(graph, "Conv", {y, v}, {}, "second")};
  SplitOptions options;
  options.parts = 8;
  const auto split = SplitTensors(graph, options);
  ASSERT_TRUE(split.ok()) << split.status();
  ASSERT_EQ(split->layers.size(), 1);
  EXPECT_THAT(split->layers[0].channels, ElementsAre(16, 16));
  EXPECT_EQ(split->layers[0].bits_after, 0);
}

TEST(SplitTensors, LeavesEvenChannels) {
  Graph graph = ResidualNetwork();
  const auto split = SplitTensors(graph);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_TRUE(split->layers.empty());
}

TEST(SplitTensors, TwiceIsRefused) {
  const auto split = SplitTensors(HostilePair(16));
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(MessageOf(SplitTensors(split->graph).status()), HasSubstr("split already"));
  SplitOptions options;
  options.parts = 1;
  options.least_gain = NAN;
  const std::string text = MessageOf(SplitTensors(HostilePair(16), options).status());
  EXPECT_THAT(text, HasSubstr("1 parts, must be 2 to 8"));
  EXPECT_THAT(text, HasSubstr("a least gain of nan bits"));
}

}  // namespace
}  // namespace quench::quantizer::split_tensors_test
