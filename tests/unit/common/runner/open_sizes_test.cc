#include "common/runner/open_sizes.h"

#include <gtest/gtest.h>

#include <limits>

#include "common/base/status.h"

namespace quench::open_sizes_test {
namespace {

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

ArtifactDim Fixed(int64_t size) { return {size, "", size, size}; }
ArtifactDim Open(const std::string& name, int64_t min = 1, int64_t max = kNoEnd) {
  return {-1, name, min, max};
}

TEST(OpenSizesTest, OnlyABatchMayBeLeftOut) {
  const std::vector<ArtifactTensor> inputs = {
      {"x", DataType::kF32, {Open("batch"), Fixed(3), Open("height", 32), Open("width", 8, 96)}}};
  EXPECT_EQ(MessageOf(ChooseSizes(inputs, {}).status()),
            "the model leaves `height` (32 and more), `width` (8 to 96) open, and the result "
            "depends on them: say at "
            "which, like `--size height=224 --size width=96`");
  const auto sizes = ChooseSizes(inputs, {{"height", 64}, {"width", 32}});
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  EXPECT_EQ(SizesText(*sizes), "batch=1, height=64, width=32");
  EXPECT_EQ(SizesText(*ChooseSizes({}, {})), "");
}

TEST(OpenSizesTest, ABatchIsWhatStandsInFrontUnlessAnotherIsCalledSo) {
  const ArtifactTensor rows{"rows", DataType::kF32, {Open("count"), Fixed(8)}};
  EXPECT_EQ(SizesText(*ChooseSizes(std::vector{rows}, {})), "count=1");
  // Steps first, as recurrent networks have them.
  const ArtifactTensor steps{"steps", DataType::kF32, {Open("time"), Open("N"), Fixed(8)}};
  EXPECT_NE(MessageOf(ChooseSizes(std::vector{steps}, {}).status()).find("`--size time=64`"),
            std::string::npos);
  const ArtifactTensor tokens{"tokens", DataType::kI64, {Open("length")}};
  EXPECT_FALSE(ChooseSizes(std::vector{tokens}, {}).ok());
}

TEST(OpenSizesTest, ABatchIsTheFirstAxisOfEverything) {
  const ArtifactTensor picture{"x", DataType::kF32, {Open("N"), Fixed(3), Fixed(8)}};
  const ArtifactTensor tokens{"t", DataType::kI64, {Fixed(4), Fixed(16)}};
  const ArtifactTensor classes{"y", DataType::kF32, {Open("N")}};
  const auto batch = [](const std::vector<ArtifactTensor>& inputs,
                        const std::vector<ArtifactTensor>& outputs) {
    return BatchOf(inputs, outputs, {{"N", 8}});
  };
  EXPECT_EQ(batch({picture}, {classes}), 8);
  EXPECT_EQ(batch({tokens}, {tokens}), 4);
  EXPECT_EQ(batch({picture, tokens}, {classes}), 0);
  EXPECT_EQ(batch({tokens}, {classes}), 0);
  EXPECT_EQ(batch({classes}, {classes}), 0);  // a list is not a batch
  EXPECT_EQ(batch({}, {classes}), 0);
}

TEST(OpenSizesTest, ExpressionsFollowAndUnknownNamesAreRefused) {
  const std::vector<ArtifactTensor> inputs = {{"x", DataType::kF32, {Open("n"), Open("2*w")}},
                                              {"y", DataType::kF32, {Open("n"), Open("w")}}};
  EXPECT_EQ(SizesText(*ChooseSizes(inputs, {{"w", 5}})), "n=1, w=5");
  EXPECT_EQ(MessageOf(ChooseSizes(inputs, {{"v", 5}}).status()),
            "no input has a symbolic dim `v`; there are `2*w`, `n`, `w`");
}

}  // namespace
}  // namespace quench::open_sizes_test
