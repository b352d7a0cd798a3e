// Switches that round layers to 16 bits.
#include "services/quantizer/switches.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/quantizer/support.h"

namespace quench::quantizer::switches_test {
namespace {

std::vector<float> Computed(const Graph& graph, std::vector<Tensor> inputs,
                            const std::vector<uint8_t>& on = {}) {
  if (!on.empty()) {
    Tensor switches = Tensor::Zeros(DataType::kBool, {static_cast<int64_t>(on.size())});
    for (size_t k = 0; k < on.size(); ++k) switches.mutable_bytes()[k] = std::byte{on[k]};
    inputs.push_back(switches);
  }
  const auto outputs = ops::Evaluate(graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  if (!outputs.ok()) return {};
  const auto numbers = (*outputs)[0].as<float>();
  return {numbers.begin(), numbers.end()};
}

// Nodes of the residual network by the product that they belong to.
std::vector<NodeId> NodesOf(const Graph& graph, const std::string& op) {
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == op) nodes.push_back(static_cast<NodeId>(i));
  }
  return nodes;
}

TEST(RoundingSwitchesTest, EachLayerIsRoundedWhereItsSwitchIsOn) {
  const Graph graph = ResidualNetwork();
  const std::vector<RoundedLayer> layers = {
      {"convolutions", DataType::kF16, NodesOf(graph, "Conv")},
      {"product", DataType::kBF16, NodesOf(graph, "Gemm")}};
  ASSERT_EQ(layers[0].nodes.size(), 2u);
  const absl::StatusOr<Graph> switched = WithRoundingSwitches(graph, layers);
  ASSERT_TRUE(switched.ok()) << switched.status();
  EXPECT_TRUE(VerifyGraph(*switched).ok()) << VerifyGraph(*switched);
  EXPECT_EQ(SwitchedLayers(*switched), (std::vector<std::string>{"convolutions", "product"}));
  EXPECT_NE(FloatModuleOf(*switched), "");
  const std::vector<Tensor> inputs = testing::RandomInputsFor(graph, 3);
  const std::vector<float> exact = Computed(graph, inputs),
                           off = Computed(*switched, inputs, {0, 0}),
                           half = Computed(*switched, inputs, {1, 0}),
                           brain = Computed(*switched, inputs, {0, 1});
  EXPECT_EQ(exact, off);
  double of_half = 0, of_brain = 0, all = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    all += double{exact[i]} * exact[i];
    of_half += std::pow(half[i] - exact[i], 2);
    of_brain += std::pow(brain[i] - exact[i], 2);
    // The result is a number of bf16.
    EXPECT_EQ(brain[i], Tensor::Floats(DataType::kBF16, {1}, {&brain[i], 1}).FloatAt(0));
  }
  EXPECT_GT(of_half, 0);
  EXPECT_GT(of_brain, of_half);
  EXPECT_LT(of_brain, 1e-3 * all);
}

TEST(RoundingSwitchesTest, TheNameOfTheInputIsTaken) {
  Graph graph = ResidualNetwork();
  graph.AddInput(std::string(kSwitchesInput), Type::Tensor(DataType::kBool, {1}));
  EXPECT_FALSE(WithRoundingSwitches(graph, {}).ok());
}

}  // namespace
}  // namespace quench::quantizer::switches_test
