#include "services/cli/precision_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/matchers.h"

namespace quench::cli::precision_report_test {
namespace {

using ::quench::testing::HasSubstr;

PrecisionReport Example() {
  PrecisionReport report;
  report.builds = {{"f32", 4, std::nullopt, true},
                   {"bf16", 2, quantizer::Cost{45, 0.0}, true},
                   {"int8", 1, quantizer::Cost{12, 0.25}, false},
                   {"mixed", 1.5, quantizer::Cost{20.5, 0.0}, true}};
  report.chosen = "mixed";
  report.layers.resize(2);
  report.layers[0].name = "conv";
  report.layers[0].op = "Conv";
  report.layers[0].microseconds = {
      {Precision::kF32, 8}, {Precision::kBF16, 4}, {Precision::kInt8, 2.5}};
  report.layers[1].name = "fc";
  report.layers[1].op = "Gemm";
  report.layers[1].why_not[Precision::kF16] = "`y` is a square";
  report.types.layers = {Precision::kInt8, Precision::kBF16};
  report.types.reasons = {"", "kept by the budget from int8: alone in it 11.0 dB"};
  report.types.others = Precision::kBF16;
  report.budget.min_sqnr_db = 20;
  report.default_budget = true;
  report.samples = 8;
  report.integers = true;
  report.written = quantizer::Cost{20.5, 0.0};
  return report;
}

TEST(PrecisionReportTest, Text) {
  const std::string text = PrecisionText(Example());
  EXPECT_THAT(text, HasSubstr("1 int8, 1 bf16 of 2 layers; other operators bf16\n"));
  EXPECT_THAT(text,
              HasSubstr("int8     1.000 ms, SQNR 12.00 dB, drop 25.00 %, outside the budget"));
  EXPECT_THAT(text, HasSubstr("mixed    1.500 ms, SQNR 20.50 dB, drop 0.00 %: chosen\n"));
  EXPECT_THAT(text, HasSubstr("on 8 samples; the budget: SQNR 20 dB at least (the default)\n"));
  EXPECT_THAT(text, HasSubstr("fc    bf16        -        -        -        -  kept by the budget "
                              "from int8: alone in it 11.0 dB; no f16: `y` is a square\n"));
}

TEST(PrecisionReportTest, WithoutDataItSaysWhatWasLeftOut) {
  PrecisionReport report = Example();
  report.samples = 0;
  report.integers = false;
  const std::string text = PrecisionText(report);
  EXPECT_THAT(text, HasSubstr("accuracy not measured"));
  EXPECT_THAT(text, HasSubstr("int8     not tried"));
}

TEST(PrecisionReportTest, Json) {
  const nlohmann::json json = PrecisionToJson(Example());
  EXPECT_EQ(json.at("chosen"), "mixed");
  EXPECT_EQ(json.at("others"), "bf16");
  EXPECT_EQ(json.at("builds").size(), 4u);
  EXPECT_EQ(json.at("layers").at(0).at("type"), "int8");
  EXPECT_EQ(json.at("layers").at(0).at("microseconds").at("int8"), 2.5);
  EXPECT_EQ(json.at("budget").at("min_sqnr_db"), 20);
  EXPECT_EQ(json.at("cost").at("sqnr_db"), 20.5);
}

}  // namespace
}  // namespace quench::cli::precision_report_test
