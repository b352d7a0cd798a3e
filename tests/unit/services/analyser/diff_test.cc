#include "services/analyser/diff.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/graphs.h"
#include "tests/support/matchers.h"

namespace quench::analyser::diff_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::HasSubstr;
using Lines = std::vector<std::string>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// x -> Conv(w) -> `activation`.
Graph Net(std::vector<float> weights, const std::string& activation = "Relu",
          const std::vector<int64_t>& strides = {1, 1}, int64_t side = 4) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 1, side, side}));
  const ValueId w =
      graph.AddConstant("w", Tensor::Of<float>(DataType::kF32, {1, 1, 1, 2}, std::move(weights)));
  const ValueId y = Add(graph, "Conv", {x, w}, {{"strides", strides}}, "conv");
  graph.outputs = {Add(graph, activation, {y}, {}, "act")};
  return graph;
}

ModuleDiff Between(const Graph& a, const Graph& b) {
  const auto diff = Diff(a, b);
  EXPECT_TRUE(diff.ok()) << diff.status();
  return *diff;
}

TEST(DiffTest, EqualModulesDifferInNothing) {
  const ModuleDiff diff = Between(Net({1, 2}), Net({1, 2}));
  EXPECT_TRUE(diff.equal);
  EXPECT_TRUE(diff.equal_structure);
  EXPECT_TRUE(diff.interface.empty() && diff.changed.empty() && diff.weights.empty());
  EXPECT_EQ(ToTable(diff), "equal: structure and weights, whatever the names\n");
}

TEST(DiffTest, WeightsAreCountedAndMeasured) {
  const ModuleDiff diff = Between(Net({1, 2}), Net({1, 2.5F}));
  EXPECT_FALSE(diff.equal);
  EXPECT_TRUE(diff.equal_structure);
  ASSERT_EQ(diff.weights.size(), 1u);
  EXPECT_EQ(diff.weights[0].elements, 2);
  EXPECT_EQ(diff.weights[0].differing, 1);
  EXPECT_EQ(diff.weights[0].max_difference, 0.5);
  EXPECT_THAT(ToTable(diff), HasSubstr("~ weight w: 1 of 2 elements differ, by 0.5 at most"));
  EXPECT_TRUE(Between(Net({1, kNan}), Net({1, -kNan})).weights.empty());
  EXPECT_EQ(Between(Net({1, kNan}), Net({1, 2})).weights[0].differing, 1);
}

TEST(DiffTest, NodesHaveTheirChanges) {
  const ModuleDiff diff = Between(Net({1, 2}), Net({1, 2}, "Exp", {2, 1}));
  EXPECT_FALSE(diff.equal_structure);
  ASSERT_EQ(diff.changed.size(), 2u);
  EXPECT_EQ(diff.changed[0].name, "conv");
  EXPECT_EQ(diff.changed[0].changes[0], "strides: [1,1] -> [2,1]");
  EXPECT_EQ(diff.changed[1].changes[0], "op: Relu -> Exp");
  const nlohmann::json json = nlohmann::json::parse(ToJson(diff));
  EXPECT_EQ(json.at("changed")[1].at("changes")[0], "op: Relu -> Exp");
}

TEST(DiffTest, InterfacesNodesAndWeightsComeAndGo) {
  Graph more = Net({1, 2}, "Relu", {1, 1}, 5);
  more.outputs.push_back(Add(
      more, "Mul", {more.outputs[0], more.AddConstant("two", Tensor::ScalarF32(2))}, {}, "mul"));
  const ModuleDiff diff = Between(Net({1, 2}), more);
  ASSERT_EQ(diff.interface.size(), 3u);
  EXPECT_EQ(diff.interface[0], "input 0: x: f32[1, 1, 4, 4] -> x: f32[1, 1, 5, 5]");
  EXPECT_THAT(diff.interface[2], HasSubstr("output 1: none -> "));
  ASSERT_EQ(diff.other_only.size(), 1u);
  EXPECT_EQ(diff.other_only[0].op, "Mul");
  ASSERT_EQ(diff.weights.size(), 1u);
  EXPECT_THAT(ToTable(diff), HasSubstr("+ weight two: f32[]"));
  EXPECT_THAT(ToTable(Between(more, Net({1, 2}))), HasSubstr("- Mul mul"));
}

}  // namespace
}  // namespace quench::analyser::diff_test
