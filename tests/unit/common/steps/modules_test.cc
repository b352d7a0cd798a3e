#include "common/steps/modules.h"

#include <gtest/gtest.h>

namespace quench::steps::modules_test {
namespace {

TEST(StoredType, IsOneOfTheTwoOrF32) {
  step::v1::PassOptions options;
  EXPECT_EQ(StoredType(options, "options").value(), DataType::kF32);
  options.set_bfloat16(true);
  EXPECT_EQ(StoredType(options, "options").value(), DataType::kBF16);
  options.set_float16(true);
  const absl::Status both = StoredType(options, "options").status();
  EXPECT_TRUE(absl::IsInvalidArgument(both)) << both;
  EXPECT_NE(both.message().find("options.bfloat16"), absl::string_view::npos) << both;
  options.set_bfloat16(false);
  EXPECT_EQ(StoredType(options, "options").value(), DataType::kF16);
}

}  // namespace
}  // namespace quench::steps::modules_test
