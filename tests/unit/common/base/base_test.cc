#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "common/base/context.h"
#include "common/base/dtype.h"
#include "common/base/half.h"
#include "common/base/status.h"

namespace quench::base_test {
namespace {

TEST(DataTypeTest, NamesParseBackAndAreUnique) {
  std::set<std::string_view> names;
  for (int i = 1; i < kDataTypeCount; ++i) {
    const DataType type = static_cast<DataType>(i);
    EXPECT_TRUE(names.insert(DataTypeName(type)).second) << DataTypeName(type);
    EXPECT_EQ(ParseDataType(DataTypeName(type)), type);
  }
  EXPECT_EQ(ParseDataType("float32"), DataType::kF32);
  EXPECT_EQ(ParseDataType("double"), DataType::kF64);
  EXPECT_EQ(ParseDataType("nonsense"), std::nullopt);
  EXPECT_EQ(ParseDataType(""), std::nullopt);
}

TEST(DataTypeTest, EveryTypeHasOneClass) {
  for (int i = 1; i < kDataTypeCount; ++i) {
    const DataType type = static_cast<DataType>(i);
    const int classes = IsFloat(type) + IsInteger(type) + IsComplex(type) +
                        (type == DataType::kBool) + (type == DataType::kString);
    EXPECT_EQ(classes, 1) << DataTypeName(type);
  }
}

TEST(DataTypeTest, SubByteTypesArePacked) {
  EXPECT_EQ(DataTypeBytes(DataType::kI4, 3), 2);
  EXPECT_EQ(DataTypeBytes(DataType::kU2, 5), 2);
  EXPECT_EQ(DataTypeBytes(DataType::kF64, 3), 24);
  EXPECT_EQ(DataTypeBytes(DataType::kBool, 3), 3);
}

TEST(HalfTest, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float wide = HalfToFloat(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(wide))));
    } else {
      EXPECT_EQ(FloatToHalf(wide), half);
    }
    const float brain = Bfloat16ToFloat(half);
    if (!std::isnan(brain)) {
      EXPECT_EQ(FloatToBfloat16(brain), half);
    }
  }
}

TEST(HalfTest, RoundsToNearestEven) {
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f), 0x3c00);      // tie, down to even
  EXPECT_EQ(FloatToHalf(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie, up to even
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);             // largest that stays finite
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);  // tie between 0 and the smallest subnormal
  EXPECT_EQ(FloatToHalf(0x1.8p-25f), 0x0001);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(FloatToBfloat16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(FloatToBfloat16(1.0f + 3 * 0x1p-8f), 0x3f82);
}

TEST(StatusTest, AnnotateKeepsTheCode) {
  const absl::Status status = Annotate(InvalidArgument("weight has rank {}", 3), "node `conv1`");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MessageOf(status), "node `conv1`: weight has rank 3");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
}

TEST(StatusTest, CollectorReportsAllAndCountsTheRest) {
  StatusCollector collector(2);
  EXPECT_TRUE(collector.Finish().ok());
  collector.Add(absl::OkStatus());
  EXPECT_TRUE(collector.ok());
  for (int i = 0; i < 5; ++i) collector.Add(Unsupported("problem {}", i));
  EXPECT_EQ(collector.Finish().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(MessageOf(collector.Finish()), "problem 0\nproblem 1\n... and 3 more");
}

TEST(StepContextTest, CancellationAndDeadline) {
  StepContext context;
  EXPECT_TRUE(context.Check().ok());
  context.set_deadline(std::chrono::steady_clock::now() - std::chrono::seconds(1));
  EXPECT_EQ(context.Check().code(), absl::StatusCode::kDeadlineExceeded);
  context.cancel_token()->Cancel();
  EXPECT_EQ(context.Check().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace quench::base_test
