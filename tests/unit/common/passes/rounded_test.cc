#include "common/passes/rounded.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/ir/text.h"
#include "common/ops/evaluate.h"

namespace quench::passes {
namespace {

Graph Parsed(const std::string& body) {
  return ParseGraph("quench.ir 1\nmodule \"m\" canonical {\n" + body + "}\n").value();
}

TEST(WithRounding, MovesWhatRoundingDecidesAndLittleElse) {
  const Graph graph = Parsed(R"(
  input %x: f32[2]
  %exp: f32[2] = Exp(%x)
  %log: f32[2] = Log(%exp)
  %none: f32[2] = Sub(%log, %x)
  output %exp, %none
)");
  const std::vector<Tensor> inputs = {Tensor::Of(DataType::kF32, {2}, std::vector<float>{1, 2})};
  const std::vector<Tensor> exact = ops::Evaluate(graph, inputs).value();
  const std::vector<Tensor> moved = ops::Evaluate(WithRounding(graph, 1e-3, 1), inputs).value();
  ASSERT_EQ(moved.size(), 2);
  EXPECT_GT(RelativeError(moved[0], exact[0]), 0);
  EXPECT_LT(RelativeError(moved[0], exact[0]), 5e-3);
  EXPECT_GT(std::abs(moved[1].FloatAt(0)), 1e-5);
  EXPECT_LT(std::abs(moved[1].FloatAt(0)), 1e-2);
}

TEST(WithRounding, LeavesIntegersAndReachesBodies) {
  const Graph graph = Parsed(R"(
  input %x: f32[2]
  input %yes: bool[]
  %kept: i64[1] = Shape(%x)
  %y: f32[2] = If(%yes) {
    then_branch = graph "" {
      const %one: f32[2] = [1.0, 1.0]
      %root: f32[2] = Sqrt(%one)
      output %root
    },
    else_branch = graph "" {
      const %two: f32[2] = [2.0, 2.0]
      output %two
    },
    q.captures = 0
  }
  output %kept, %y
)");
  const Tensor yes = Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{1});
  const std::vector<Tensor> inputs = {Tensor::Zeros(DataType::kF32, {2}), yes};
  const std::vector<Tensor> moved = ops::Evaluate(WithRounding(graph, 1e-3, 1), inputs).value();
  EXPECT_EQ(moved[0].IntAt(0), 2);
  EXPECT_NE(moved[1].FloatAt(0), 1);
  EXPECT_NEAR(moved[1].FloatAt(0), 1, 3e-3);
}

}  // namespace
}  // namespace quench::passes
