#include "services/quantizer/scheme.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quench::quantizer::scheme_test {
namespace {

TEST(Scheme, AsymmetricUsesAllIntegersAndHasZero) {
  const Affine affine = AffineFor({-1, 3}, {DataType::kI8, false, false});
  EXPECT_FLOAT_EQ(affine.scale, 4.0f / 255);
  EXPECT_EQ(affine.zero_point, -64);
  EXPECT_EQ(Quantized(-1, affine), -128);
  EXPECT_EQ(Quantized(3, affine), 127);
  EXPECT_EQ(Dequantized(Quantized(0, affine), affine), 0);
}

TEST(Scheme, RangesAreWidenedToZero) {
  EXPECT_EQ(AffineFor({2, 5.1}, {DataType::kU8, false, false}).zero_point, 0);
  EXPECT_FLOAT_EQ(AffineFor({2, 5.1}, {DataType::kU8, false, false}).scale, 5.1f / 255);
  EXPECT_EQ(AffineFor({-2, -1}, {DataType::kU8, false, false}).zero_point, 255);
}

TEST(Scheme, SymmetricHasZeroInTheMiddle) {
  const Affine i8 = AffineFor({-2, 1}, {DataType::kI8, true, false});
  EXPECT_EQ(i8.zero_point, 0);
  EXPECT_FLOAT_EQ(i8.scale, 2.0f / 127);
  const Affine u8 = AffineFor({-2, 1}, {DataType::kU8, true, false});
  EXPECT_EQ(u8.zero_point, 128);
  EXPECT_EQ(Quantized(-2, u8), 1);
  EXPECT_EQ(Quantized(2, u8), 255);
  EXPECT_FLOAT_EQ(AffineFor({-2, 1}, {DataType::kI4, true, false}).scale, 2.0f / 7);
}

TEST(Scheme, PowersOfTwoClipNothing) {
  const Affine affine = AffineFor({-3, 3}, {DataType::kI8, true, true});
  EXPECT_EQ(affine.scale, 0.03125f);
  EXPECT_EQ(std::exp2(std::round(std::log2(affine.scale))), affine.scale);
  EXPECT_EQ(AffineFor({-127, 127}, {DataType::kI8, true, true}).scale, 1);
}

TEST(Scheme, DegenerateRangesHaveNormalScales) {
  EXPECT_EQ(AffineFor({0, 0}, {}).scale, 1);
  EXPECT_EQ(AffineFor({0, 1e-44}, {}).scale, std::numeric_limits<float>::min());
  const double most = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isfinite(AffineFor({-most, most}, {}).scale));
}

// The greatest error of what is inside is half a step.
TEST(Scheme, InsideTheErrorIsHalfAStep) {
  for (const bool symmetric : {false, true}) {
    const Affine affine = AffineFor({-0.7, 1.9}, {DataType::kU8, symmetric, false});
    for (double real = -0.7; real <= 1.9; real += 0.001) {
      EXPECT_LE(std::abs(Dequantized(Quantized(real, affine), affine) - real),
                affine.scale * 0.5001 + 1e-7)
          << real;
    }
  }
}

}  // namespace
}  // namespace quench::quantizer::scheme_test
