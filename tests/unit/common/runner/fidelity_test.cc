#include "common/runner/fidelity.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quench::fidelity_test {
namespace {

Tensor F32(const std::vector<float>& values) {
  return Tensor::Of(DataType::kF32, {static_cast<int64_t>(values.size())}, values);
}

TEST(NoiseSums, AreOfAllThatWasAdded) {
  NoiseSums sums;
  sums.Add(F32({3, 0}), F32({3, 1}));
  sums.Add(F32({4}), F32({4}));
  EXPECT_EQ(sums.elements, 3);
  EXPECT_NEAR(sums.SqnrDb(), 10 * std::log10(25.0), 1e-12);
  EXPECT_NEAR(sums.Cosine(), 25 / std::sqrt(25.0 * 26), 1e-12);
  EXPECT_EQ(sums.max_error, 1);
}

TEST(NoiseSums, EqualIsInfinitelyGood) {
  NoiseSums sums;
  sums.Add(F32({1, -2}), F32({1, -2}));
  EXPECT_EQ(sums.SqnrDb(), INFINITY);
  EXPECT_EQ(NoiseSums().Cosine(), 1);
}

// Masks of -inf are no noise where both have them, and nothing but noise where one has.
TEST(NoiseSums, InfinitiesMayBeEqual) {
  NoiseSums sums;
  sums.Add(F32({1, -INFINITY}), F32({0.5F, -INFINITY}));
  EXPECT_NEAR(sums.SqnrDb(), 10 * std::log10(4.0), 1e-12);
  sums.Add(F32({0}), F32({-INFINITY}));
  EXPECT_EQ(sums.SqnrDb(), -INFINITY);
  sums.Add(F32({0}), F32({NAN}));
  EXPECT_TRUE(std::isnan(sums.SqnrDb()));
  EXPECT_TRUE(std::isnan(sums.max_error));
}

TEST(TopClasses, AreBestFirstAndNeverNan) {
  const Tensor scores = Tensor::Of(DataType::kF32, {2, 3}, std::vector<float>{1, 3, 3, NAN, -1, 0});
  EXPECT_TRUE(HasClasses(scores));
  EXPECT_EQ(TopClasses(scores, 2), (std::vector<std::vector<int64_t>>{{1, 2}, {2, 1}}));
  EXPECT_EQ(TopClasses(scores, 1), (std::vector<std::vector<int64_t>>{{1}, {2}}));
  EXPECT_FALSE(HasClasses(F32({1})));
  EXPECT_FALSE(HasClasses(Tensor::Zeros(DataType::kBool, {2})));
}

}  // namespace
}  // namespace quench::fidelity_test
