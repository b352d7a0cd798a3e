#include "common/passes/cut.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/ops/evaluate.h"
#include "tests/support/graphs.h"

namespace quench::passes::cut_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::RandomTensor;

constexpr double kWidth = 1e-3;

Rounding OfI8(int64_t actual, double steps, int64_t zero = 0) {
  return Judge(actual, steps, zero, DataType::kI8, kWidth);
}

TEST(JudgeTest, TheNearestIsRight) {
  EXPECT_EQ(OfI8(3, 3.4), Rounding::kNearest);
  EXPECT_EQ(OfI8(-3, -3.4), Rounding::kNearest);
  EXPECT_EQ(OfI8(13, 3.4, 10), Rounding::kNearest);
  EXPECT_EQ(OfI8(4, 3.4), Rounding::kWrong);
  EXPECT_EQ(OfI8(3, 3.4, 10), Rounding::kWrong);
}

TEST(JudgeTest, AtATieBothNeighboursAre) {
  EXPECT_EQ(OfI8(2, 2.5), Rounding::kNearest);  // half to even
  EXPECT_EQ(OfI8(3, 2.5), Rounding::kOtherOfTie);
  EXPECT_EQ(OfI8(3, 2.4991), Rounding::kOtherOfTie);
  EXPECT_EQ(OfI8(2, 2.5009), Rounding::kOtherOfTie);
  EXPECT_EQ(OfI8(-3, -2.4995), Rounding::kOtherOfTie);
}

TEST(JudgeTest, NothingElseIs) {
  EXPECT_EQ(OfI8(3, 2.498), Rounding::kWrong);
  EXPECT_EQ(OfI8(2, 2.502), Rounding::kWrong);
  EXPECT_EQ(OfI8(1, 2.5), Rounding::kWrong);
  EXPECT_EQ(OfI8(4, 2.5), Rounding::kWrong);
  EXPECT_EQ(OfI8(3, 2.0), Rounding::kWrong);
}

TEST(JudgeTest, SaturationIsAtTheEndsOfTheType) {
  EXPECT_EQ(OfI8(127, 300), Rounding::kNearest);
  EXPECT_EQ(OfI8(127, INFINITY), Rounding::kNearest);
  EXPECT_EQ(OfI8(126, 300), Rounding::kWrong);
  EXPECT_EQ(Judge(0, -20, 5, DataType::kU8, kWidth), Rounding::kNearest);
  EXPECT_EQ(Judge(255, 127, 128, DataType::kU8, kWidth), Rounding::kNearest);
}

TEST(JudgeTest, TiesAreAsWideAsTheFloatsAreCoarse) {
  EXPECT_DOUBLE_EQ(TieWidth(DataType::kF32, DataType::kI8), 1e-3);
  EXPECT_GT(TieWidth(DataType::kF32, DataType::kI16), 1e-3);
  EXPECT_GT(TieWidth(DataType::kF16, DataType::kI8), 0.2);
}

TEST(CutTest, ReadersReadTheInputInstead) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {4}));
  const ValueId two = graph.AddConstant("two", Tensor::ScalarF32(2));
  const ValueId a = Add(graph, "Mul", {x, two}, {}, "a");
  graph.outputs = {Add(graph, "Mul", {a, two}, {}, "b"), a};
  const Graph cut = CutAt(graph, {"a"});
  const Tensor ones = Tensor::Of(DataType::kF32, {4}, std::vector<float>{1, 1, 1, 1});
  const Tensor tens = Tensor::Of(DataType::kF32, {4}, std::vector<float>{10, 10, 10, 10});
  const auto results = ops::Evaluate(cut, std::vector<Tensor>{ones, tens});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].FloatAt(0), 20);  // of what was fed
  EXPECT_EQ((*results)[1].FloatAt(0), 2);   // as it was made
}

Tensor Bytes(DataType type, std::vector<int64_t> dims, int64_t step) {
  Tensor result = Tensor::Zeros(type, std::move(dims));
  for (int64_t i = 0; i < result.size(); ++i)
    result.mutable_bytes()[i] = static_cast<std::byte>(i * step % 251);
  return result;
}

TEST(CutTest, LinearOperatorsAreWhatTheyStandFor) {
  Graph graph;
  const auto number = [&](const char* name, float value) {
    return graph.AddConstant(name, Tensor::ScalarF32(value));
  };
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kU8, {1, 3, 5, 5}));
  const ValueId xz = graph.AddConstant("xz", Bytes(DataType::kU8, {}, 0));
  const ValueId wz = graph.AddConstant("wz", Bytes(DataType::kI8, {}, 0));
  const ValueId w = graph.AddConstant("w", Bytes(DataType::kI8, {4, 3, 3, 3}, 97));
  const ValueId ws = graph.AddConstant(
      "ws", Tensor::Of(DataType::kF32, {4}, std::vector<float>{0.01F, 0.02F, 0.03F, 0.04F}));
  const ValueId bias = graph.AddConstant(
      "bias", Tensor::Of(DataType::kI32, {4}, std::vector<int32_t>{100, -2000, 30000, 4}));
  const ValueId xs = number("xs", 0.02F), ys = number("ys", 0.31F);
  graph.outputs = {Add(graph, "QLinearConv", {x, xs, xz, w, ws, wz, ys, wz, bias}, {}, "linear")};
  const auto expanded = ExpandLinear(graph);
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  const std::vector<Quantizer> quantizers = QuantizersOf(*expanded);
  ASSERT_EQ(quantizers.size(), 1u);
  EXPECT_EQ(quantizers[0].value, "linear");
  EXPECT_EQ(quantizers[0].node, "linear");
  const std::vector<Tensor> inputs = {Bytes(DataType::kU8, {1, 3, 5, 5}, 53)};
  const auto before = ops::Evaluate(graph, inputs), after = ops::Evaluate(*expanded, inputs);
  ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
  EXPECT_EQ(RelativeError((*after)[0], (*before)[0]), 0);
}

}  // namespace
}  // namespace quench::passes::cut_test
