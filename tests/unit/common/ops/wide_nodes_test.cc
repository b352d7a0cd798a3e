// Operators that take any number of inputs, with more of them than expressions may nest.
#include <gtest/gtest.h>

#include "run_op.h"

namespace quench::ops::wide_nodes_test {
namespace {

constexpr int kInputs = 1100;

// A node of kInputs inputs of [n]; input i holds i, i + 1, or all hold `fill`.
absl::StatusOr<std::vector<Tensor>> RunWide(const std::string& op,
                                            std::map<std::string, Attribute> attributes = {},
                                            std::optional<float> fill = {}) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}, {1, 8}));
  std::vector<ValueId> ids;
  std::vector<Tensor> inputs;
  for (int i = 0; i < kInputs; ++i) {
    ids.push_back(graph.AddInput("x" + std::to_string(i), Type::Tensor(DataType::kF32, {n})));
    const auto first = fill.value_or(static_cast<float>(i));
    inputs.push_back(F32({2}, {first, fill.value_or(first + 1)}));
  }
  const NodeId node = graph.AddNode(op, "y", ids, 1, std::move(attributes));
  graph.outputs = graph.node(node).outputs;
  return Evaluate(graph, inputs);
}

TEST(WideNodes, ElementByElement) {
  constexpr double kSum = kInputs * (kInputs - 1) / 2.0;
  const std::map<std::string, std::pair<double, double>> expected = {
      {"Sum", {kSum, kSum + kInputs}},
      {"Mean", {kSum / kInputs, kSum / kInputs + 1}},
      {"Max", {kInputs - 1, kInputs}},
      {"Min", {0, 1}}};
  for (const auto& [op, values] : expected) {
    const auto y = RunWide(op);
    ASSERT_TRUE(y.ok()) << op << ": " << y.status();
    EXPECT_EQ((*y)[0].FloatAt(0), values.first) << op;
    EXPECT_EQ((*y)[0].FloatAt(1), values.second) << op;
  }
}

TEST(WideNodes, Concat) {
  const auto y = RunWide("Concat", {{"axis", int64_t{0}}});
  ASSERT_TRUE(y.ok()) << y.status();
  ASSERT_EQ((*y)[0].dims(), (std::vector<int64_t>{2 * kInputs}));
  EXPECT_EQ((*y)[0].FloatAt(2 * kInputs - 1), kInputs);
}

TEST(WideNodes, Einsum) {
  std::string equation = "a";
  for (int i = 1; i < kInputs; ++i) equation += ",a";
  const auto y = RunWide("Einsum", {{"equation", equation + "->a"}}, -1);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].FloatAt(0), 1);
}

}  // namespace
}  // namespace quench::ops::wide_nodes_test
