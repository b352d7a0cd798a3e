#include "services/quantizer/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "common/base/status.h"
#include "tests/support/matchers.h"

namespace quench::quantizer::statistics_test {
namespace {

using testing::HasSubstr;

Tensor Row(const std::vector<float>& values) {
  return Tensor::Of(DataType::kF32, {1, static_cast<int64_t>(values.size())}, values);
}

Histogram Of(const std::vector<float>& values) {
  Histogram histogram;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  histogram.Add(values, *low, *high);
  return histogram;
}

uint64_t CountAt(const Histogram& histogram, double value) {
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    if (histogram.Edge(i) <= value && value < histogram.Edge(i + 1)) return histogram.counts()[i];
  }
  return 0;
}

bool Same(const Histogram& a, const Histogram& b) {
  return a.exponent() == b.exponent() && a.first_bin() == b.first_bin() &&
         std::equal(a.counts().begin(), a.counts().end(), b.counts().begin(), b.counts().end());
}

TEST(Histogram, EveryValueLiesInItsBin) {
  const Histogram histogram = Of({-1.5f, -0.0f, 0.25f, 0.25f, 3.0f, std::nextafter(3.0f, 0.0f)});
  EXPECT_EQ(histogram.total(), 6u);
  EXPECT_EQ(CountAt(histogram, -1.5), 1u);
  EXPECT_EQ(CountAt(histogram, 0), 1u);
  EXPECT_EQ(CountAt(histogram, 0.25), 2u);
  EXPECT_EQ(CountAt(histogram, 3), 1u);
  EXPECT_EQ(CountAt(histogram, std::nextafter(3.0f, 0.0f)), 1u);
  EXPECT_GT(histogram.counts().size(), 2048u);
  EXPECT_LE(histogram.counts().size(), 4096u);
}

TEST(Histogram, SmallNegativesAreNotZeros) {
  const Histogram histogram = Of({-1e-30f, 1e-30f, -2, 2});
  EXPECT_EQ(CountAt(histogram, -1e-9), 1u);
  EXPECT_EQ(CountAt(histogram, 1e-9), 1u);
}

TEST(Histogram, ExtremesOfFloatsAreTaken) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Of({0}).total(), 1u);
  EXPECT_EQ(Of({kLeast, -kLeast}).total(), 2u);
  EXPECT_EQ(Of({-kMost, kMost}).total(), 2u);
  Histogram histogram = Of({0, kLeast});
  histogram.Add(std::vector<float>{-kMost, kMost}, -kMost, kMost);
  EXPECT_EQ(histogram.total(), 4u);
  EXPECT_LE(histogram.counts().size(), 4096u);
  EXPECT_EQ(CountAt(histogram, 0), 2u);
}

// Values far from zero are not counted finer than a range that includes zero can use.
TEST(Histogram, ReachesToZero) {
  const Histogram histogram = Of({1000, 1000.5f});
  EXPECT_LE(histogram.Edge(0), 0);
  EXPECT_LE(histogram.counts().size(), 4096u);
  EXPECT_EQ(Magnitudes(histogram).size(), histogram.counts().size());
}

TEST(Histogram, OrderAndMergingChangeNothing) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<float>> parts(1 + random() % 6);
    std::vector<float> all;
    for (std::vector<float>& part : parts) {
      const float scale = std::exp2(static_cast<float>(static_cast<int>(random() % 40)) - 20);
      std::normal_distribution<float> normal(round % 3 == 0 ? scale : 0, scale);
      part.resize(1 + random() % 200);
      for (float& value : part) value = random() % 8 == 0 ? 0 : normal(random);
      all.insert(all.end(), part.begin(), part.end());
    }
    const Histogram once = Of(all);
    Histogram added, merged;
    std::shuffle(parts.begin(), parts.end(), random);
    for (const std::vector<float>& part : parts) {
      const auto [low, high] = std::minmax_element(part.begin(), part.end());
      added.Add(part, *low, *high);
      merged.Merge(Of(part));
    }
    EXPECT_TRUE(Same(once, added));
    EXPECT_TRUE(Same(once, merged));
  }
}

TEST(Histogram, PartsGiveItBackAndImpossibleOnesNothing) {
  const Histogram histogram = Of({-1, 2, 3});
  const auto parts = [&] {
    return std::vector<uint64_t>(histogram.counts().begin(), histogram.counts().end());
  };
  EXPECT_TRUE(
      Same(histogram, Histogram::FromParts(histogram.exponent(), histogram.first_bin(), parts())));
  EXPECT_TRUE(Histogram::FromParts(200, 0, {1}).empty());
  EXPECT_TRUE(Histogram::FromParts(0, 1, {1}).empty());
  EXPECT_TRUE(Histogram::FromParts(0, -5, {1, 1}).empty());
  EXPECT_TRUE(Histogram::FromParts(0, 0, std::vector<uint64_t>(4097, 1)).empty());
}

TEST(Statistics, CountsChannelsAndMoments) {
  TensorStatistics statistics;
  const Tensor first = Tensor::Of(DataType::kF32, {1, 2, 2}, std::vector<float>{1, 2, -3, 4});
  const Tensor second = Tensor::Of(DataType::kF32, {2, 2, 1}, std::vector<float>{10, 0, -1, 1});
  ASSERT_TRUE(statistics.Add(first, 1).ok());
  ASSERT_TRUE(statistics.Add(second, 1).ok());
  EXPECT_EQ(statistics.samples, 2);
  EXPECT_EQ(statistics.elements, 8);
  EXPECT_EQ(statistics.low, -3);
  EXPECT_EQ(statistics.high, 10);
  EXPECT_EQ(statistics.sum_of_lows, -4);
  EXPECT_EQ(statistics.sum_of_highs, 14);
  EXPECT_DOUBLE_EQ(statistics.mean(), 14.0 / 8);
  EXPECT_DOUBLE_EQ(statistics.variance(), 132.0 / 8 - 14.0 / 8 * 14 / 8);
  ASSERT_EQ(statistics.channels.size(), 2u);
  EXPECT_EQ(statistics.channels[0].low, -1);
  EXPECT_EQ(statistics.channels[0].high, 10);
  EXPECT_EQ(statistics.channels[0].sum, 12);
  EXPECT_EQ(statistics.channels[1].low, -3);
  EXPECT_EQ(statistics.channels[1].elements, 4);
}

TEST(Statistics, NotFiniteIsCountedAndChangesNothing) {
  TensorStatistics statistics;
  ASSERT_TRUE(statistics.Add(Row({1, 2}), 1).ok());
  const absl::Status status = statistics.Add(Row({NAN, INFINITY, 1, -INFINITY, 0}), 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MessageOf(status), "1 NaN and 2 infinite of 5 elements");
  EXPECT_EQ(statistics.samples, 1);
  EXPECT_EQ(statistics.elements, 2);
}

// The least float, which pads a MaxPool as -infinity does, would be the whole range.
TEST(Statistics, WhatStandsForInfinityIsNoRange) {
  TensorStatistics statistics;
  ASSERT_TRUE(statistics.Add(Row({1, 2}), 1).ok());
  for (const float mask : {std::numeric_limits<float>::lowest(), 3e38f, -1e30f}) {
    const absl::Status status = statistics.Add(Row({mask, mask, 1}), -1);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << mask;
  }
  EXPECT_EQ(statistics.samples, 1);
  EXPECT_EQ(statistics.low, 1);
  EXPECT_TRUE(TensorStatistics().Add(Row({-65504, 1e29f}), -1).ok());
  // 0xFBFF is -65504, the least f16.
  const Tensor half = Tensor::Of(DataType::kF16, {2}, std::vector<uint16_t>{0xFBFF, 0x3C00});
  EXPECT_TRUE(absl::IsOutOfRange(TensorStatistics().Add(half, -1)));
}

TEST(Statistics, EmptyTensorsAreNoSamples) {
  TensorStatistics statistics;
  ASSERT_TRUE(statistics.Add(Tensor::Zeros(DataType::kF32, {0, 3}), 1).ok());
  EXPECT_EQ(statistics.samples, 0);
}

TEST(Statistics, OtherFloatsAreTaken) {
  TensorStatistics statistics;
  ASSERT_TRUE(statistics.Add(Tensor::Of(DataType::kF64, {2}, std::vector<double>{-2, 5}), -1).ok());
  EXPECT_EQ(statistics.low, -2);
  EXPECT_EQ(statistics.high, 5);
}

TEST(Statistics, MergeOfPartsIsTheWhole) {
  TensorStatistics whole, left, right;
  ASSERT_TRUE(whole.Add(Row({1, -2}), 1).ok());
  ASSERT_TRUE(whole.Add(Row({5, 7}), 1).ok());
  ASSERT_TRUE(left.Add(Row({1, -2}), 1).ok());
  ASSERT_TRUE(right.Add(Row({5, 7}), 1).ok());
  ASSERT_TRUE(left.Merge(right).ok());
  ASSERT_TRUE(left.Merge(TensorStatistics()).ok());
  EXPECT_EQ(left.low, whole.low);
  EXPECT_EQ(left.high, whole.high);
  EXPECT_EQ(left.sum_of_lows, whole.sum_of_lows);
  EXPECT_EQ(left.sum_of_squares, whole.sum_of_squares);
  EXPECT_EQ(left.channels[1].high, whole.channels[1].high);
  EXPECT_TRUE(Same(left.histogram, whole.histogram));
  TensorStatistics wider;
  ASSERT_TRUE(wider.Add(Row({1, 2, 3}), 1).ok());
  EXPECT_EQ(left.Merge(wider).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Statistics, OfAnotherModuleAreRefused) {
  Statistics a, b;
  a.fingerprint = "aaaa";
  b.fingerprint = "bbbb";
  const absl::Status status = a.Merge(b);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_PRED1(HasSubstr("aaaa"), MessageOf(status));
}

}  // namespace
}  // namespace quench::quantizer::statistics_test
