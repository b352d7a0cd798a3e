// Types for layers: by time, and down to f32.
#include "services/cli/precision_choice.h"

#include <gtest/gtest.h>

namespace quench::cli::precision_choice_test {
namespace {

constexpr Precision kF32 = Precision::kF32, kF16 = Precision::kF16, kBF16 = Precision::kBF16,
                    kInt8 = Precision::kInt8;

PrecisionLayer Layer(const std::map<Precision, double>& microseconds,
                     const std::map<Precision, std::string>& why_not = {}) {
  PrecisionLayer layer;
  layer.microseconds = microseconds;
  layer.why_not = why_not;
  return layer;
}

TEST(PrecisionChoiceTest, TheUsualTypeUnlessAnotherIsClearlyFaster) {
  EXPECT_EQ(FastestFor(Layer({{kF32, 9}, {kBF16, 10}}), kPrecisions, kBF16), kF32);
  EXPECT_EQ(FastestFor(Layer({{kF32, 9.8}, {kBF16, 10}}), kPrecisions, kBF16), kBF16);
  EXPECT_EQ(FastestFor(Layer({{kF32, 9}, {kF16, 8}, {kBF16, 10}}), kPrecisions, kBF16), kF16);
}

TEST(PrecisionChoiceTest, OnlyTypesThatItCanHave) {
  const PrecisionLayer layer = Layer({{kF32, 9}, {kF16, 1}, {kBF16, 10}}, {{kF16, "a square"}});
  EXPECT_EQ(FastestFor(layer, kPrecisions, kBF16), kF32);
  EXPECT_EQ(FastestFor(layer, kPrecisions, kF16), kF32) << "f32 is the usual one then";
  const Precision floats[] = {kF32, kF16};
  EXPECT_EQ(FastestFor(Layer({{kF32, 9}, {kInt8, 1}}), floats, kF32), kF32);
}

TEST(PrecisionChoiceTest, WithoutTimesItHasTheUsualOne) {
  EXPECT_EQ(FastestFor(Layer({}), kPrecisions, kBF16), kBF16);
  EXPECT_EQ(FastestFor(Layer({}, {{kBF16, "no"}}), kPrecisions, kBF16), kF32);
}

TEST(PrecisionChoiceTest, LayersThatCannotBeIntegersAreFastFloats) {
  const std::vector<PrecisionLayer> layers = {
      Layer({{kF32, 9}, {kBF16, 3}, {kInt8, 2}}),
      Layer({{kF32, 9}, {kBF16, 3}}, {{kInt8, "its first operand is a constant"}})};
  const Assignment types = FastestTypes(layers, kPrecisions, kInt8, kBF16);
  EXPECT_EQ(types.layers, (std::vector<Precision>{kInt8, kBF16}));
  EXPECT_EQ(types.others, kBF16);
}

TEST(PrecisionChoiceTest, TheLadderTakesTheMostSensitiveFirstAndEndsInF32) {
  const std::vector<PrecisionLayer> layers = {Layer({{kF32, 9}, {kF16, 5}, {kBF16, 3}, {kInt8, 2}}),
                                              Layer({{kF32, 9}, {kF16, 5}, {kBF16, 3}, {kInt8, 2}}),
                                              Layer({{kF32, 9}, {kBF16, 3}})};
  Assignment from;
  from.layers = {kInt8, kInt8, kBF16};
  from.reasons.resize(3);
  from.others = kBF16;
  const std::vector<Demotion> ladder =
      Ladder(from, layers, {{0, 30}, {1, 20}}, {{0, 50}, {1, 49}, {2, 25}}, kBF16);
  std::vector<Assignment> steps;
  for (size_t i = 0; i <= ladder.size(); ++i) steps.push_back(After(from, ladder, i));
  EXPECT_EQ(steps[1].layers, (std::vector<Precision>{kInt8, kBF16, kBF16}));  // 20 dB
  EXPECT_EQ(steps[2].layers, (std::vector<Precision>{kInt8, kBF16, kF32}));   // 25: f16 not timed
  EXPECT_EQ(steps[3].layers, (std::vector<Precision>{kBF16, kBF16, kF32}));   // 30
  EXPECT_EQ(steps[4].layers, (std::vector<Precision>{kBF16, kF16, kF32}));    // 49
  EXPECT_EQ(steps[5].layers, (std::vector<Precision>{kF16, kF16, kF32}));     // 50
  EXPECT_EQ(steps[1].reasons[1], "kept by the budget from int8: alone in it 20.0 dB");
  EXPECT_EQ(steps.back().layers, (std::vector<Precision>{kF32, kF32, kF32}));
  EXPECT_EQ(steps.back().others, kF32);
}

TEST(PrecisionChoiceTest, HalvesThatSensitivityIsMeasuredIn) {
  const PrecisionLayer layer = Layer({{kF32, 9}, {kBF16, 3}, {kInt8, 2}});
  EXPECT_EQ(HalfOf(layer, kInt8, kF32), kBF16);
  EXPECT_EQ(HalfOf(layer, kF16, kF32), kF16);
  EXPECT_EQ(HalfOf(layer, kF32, kBF16), kF32);
}

}  // namespace
}  // namespace quench::cli::precision_choice_test
