#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/base/status.h"
#include "services/quantizer/methods/method.h"
#include "tests/support/matchers.h"

namespace quench::quantizer::methods_test {
namespace {

using testing::HasSubstr;

TensorStatistics Seen(const std::vector<std::vector<float>>& samples) {
  TensorStatistics statistics;
  for (const std::vector<float>& sample : samples) {
    EXPECT_TRUE(
        statistics
            .Add(Tensor::Of(DataType::kF32, {static_cast<int64_t>(sample.size())}, sample), -1)
            .ok());
  }
  return statistics;
}

Range Choose(const char* name, const TensorStatistics& statistics,
             const MethodOptions& options = {}) {
  const auto method = FindMethod(name);
  EXPECT_TRUE(method.ok()) << method.status();
  return (*method)->choose(statistics, options);
}

std::vector<float> Normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

double ErrorOf(const std::vector<float>& values, const Range& range, const Scheme& scheme) {
  const Affine affine = AffineFor(range, scheme);
  double error = 0;
  for (const float value : values) {
    const double difference = value - Dequantized(Quantized(value, affine), affine);
    error += difference * difference;
  }
  return error;
}

TEST(Methods, AreFoundByName) {
  EXPECT_EQ((*FindMethod(""))->name, "average");
  EXPECT_EQ((*FindMethod("mse"))->name, "mse");
  const absl::Status unknown = FindMethod("kl").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_PRED1(HasSubstr("average, minmax, percentile, entropy, mse"), MessageOf(unknown));
}

TEST(Methods, AverageAndMinMaxAreTheirFormulas) {
  const TensorStatistics seen = Seen({{-1, 2}, {-3, 4}, {0, 9}});
  EXPECT_EQ(Choose("average", seen), (Range{-4.0 / 3, 5}));
  EXPECT_EQ(Choose("minmax", seen), (Range{-3, 9}));
}

TEST(Methods, PercentileCutsHalfAtEachEnd) {
  std::vector<float> values;
  for (int i = 0; i <= 10000; ++i) values.push_back(static_cast<float>(i - 2000));
  const TensorStatistics seen = Seen({values});
  const Range range = Choose("percentile", seen);
  EXPECT_NEAR(range.low, -1950, 5);
  EXPECT_NEAR(range.high, 7950, 5);
  const Range all = Choose("percentile", seen, {100, {}});
  EXPECT_NEAR(all.low, -2000, 5);
  EXPECT_EQ(all.high, 8000);
  // By magnitude, once: 99 % of |x| are below 7,900.
  const Range symmetric = Choose("percentile", seen, {99, {DataType::kI8, true, false}});
  EXPECT_NEAR(symmetric.high, 7900, 5);
  EXPECT_EQ(symmetric.low, -2000);
}

TEST(Methods, ClippingOnesLetAnOutlierGo) {
  std::vector<float> values = Normal(20000, 3);
  values.push_back(1000);
  const TensorStatistics seen = Seen({values});
  EXPECT_EQ(Choose("minmax", seen).high, 1000);
  for (const char* name : {"percentile", "entropy"}) {
    const Range range = Choose(name, seen);
    EXPECT_LT(range.high, 50) << name;
    EXPECT_GT(range.high, 1) << name;
    EXPECT_LT(range.low, -1) << name;
  }
}

TEST(Methods, MseHasLessErrorThanTheOthers) {
  std::vector<float> values = Normal(20000, 5);
  for (size_t i = 0; i < 20; ++i) values[i] *= 4;
  const TensorStatistics seen = Seen({values});
  for (const bool symmetric : {false, true}) {
    const Scheme scheme{DataType::kI4, symmetric, false};
    const double mse = ErrorOf(values, Choose("mse", seen, {99, scheme}), scheme);
    for (const char* name : {"average", "minmax", "percentile", "entropy"}) {
      EXPECT_LE(mse, 1.02 * ErrorOf(values, Choose(name, seen, {99, scheme}), scheme)) << name;
    }
    EXPECT_LT(mse, 0.5 * ErrorOf(values, Choose("minmax", seen), scheme));
  }
}

// An image's background and few other values: to clip all but the background loses no information
// in the sense of the formula, and everything else.
TEST(Methods, FewKindsOfValuesAreNotClippedAway) {
  std::vector<float> values(8000, -0.42f);
  for (int i = 0; i < 2000; ++i)
    values.push_back(-0.42f + 3.2f * static_cast<float>(i % 256) / 255);
  const TensorStatistics seen = Seen({values});
  for (const char* name : {"average", "minmax", "entropy", "mse"}) {
    EXPECT_GT(Choose(name, seen).high, 2) << name;
  }
}

// Two elements in a thousand far from the others are not outliers: to lose them costs more than wide steps.
TEST(Methods, EntropyKeepsFarValuesThatAreNotFew) {
  for (const size_t far : {1U, 40U}) {
    std::vector<float> values = Normal(20000, 11);
    for (size_t i = 0; i < far; ++i) values[i] = 60 + static_cast<float>(i % 7);
    const Range range = Choose("entropy", Seen({values}));
    EXPECT_EQ(range.high > 50, far > 1) << range.high;
  }
}

TEST(Methods, OneSidedValuesKeepTheirSide) {
  std::vector<float> values = Normal(20000, 9);
  for (float& value : values) value = std::max(value, 0.0f);
  const TensorStatistics seen = Seen({values});
  for (const MethodInfo& method : AllMethods()) {
    const Range range = method.choose(seen, {});
    EXPECT_NEAR(range.low, 0, 1e-3) << method.name;
    EXPECT_GT(range.high, 2) << method.name;
    EXPECT_LE(range.high, seen.high) << method.name;
  }
}

TEST(Methods, ConstantsAndSingleElementsGiveARange) {
  for (const float constant : {0.0f, 3.0f, -3.0f}) {
    const TensorStatistics seen = Seen({{constant}});
    for (const MethodInfo& method : AllMethods()) {
      for (const bool symmetric : {false, true}) {
        const Scheme scheme{DataType::kI8, symmetric, false};
        const Range range = method.choose(seen, {99.999, scheme});
        EXPECT_LE(range.low, range.high) << method.name;
        const Affine affine = AffineFor(range, scheme);
        EXPECT_NEAR(Dequantized(Quantized(constant, affine), affine), constant,
                    std::abs(constant) / 100)
            << method.name << " " << constant;
      }
    }
  }
}

}  // namespace
}  // namespace quench::quantizer::methods_test
