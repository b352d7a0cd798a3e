#include "services/cli/compare_page.h"

#include <gtest/gtest.h>

#include <limits>

namespace quench::cli::compare_page_test {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

analyser::ValueComparison Value(const std::string& name, double sqnr_db) {
  analyser::ValueComparison value;
  value.value = name;
  value.elements = 10;
  value.sqnr_db = sqnr_db;
  return value;
}

std::string Page(const analyser::CompareReport& report) {
  return ComparePage({"a.onnx", "b.qir", "samples"}, report);
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

bool Has(const std::string& text, const std::string& part) { return Count(text, part) > 0; }

TEST(ComparePageTest, WhatWasComparedIsEscaped) {
  analyser::CompareReport report;
  report.samples = 3;
  report.outputs = {Value("<script>\"&'\x01\xff", 20)};
  report.layers = {Value("<b>", 20)};
  const std::string page = ComparePage({"<a>", "b&b", "\"c\""}, report);
  EXPECT_TRUE(Has(page, "<h1>&lt;a&gt; &rarr; b&amp;b</h1>")) << page;
  EXPECT_TRUE(Has(page, "3, &quot;c&quot;"));
  EXPECT_TRUE(Has(page, "&lt;script&gt;&quot;&amp;&#39;__"));
  EXPECT_TRUE(Has(page, "&lt;b&gt;"));
  EXPECT_FALSE(Has(page, "<script") || Has(page, "<b><"));
}

TEST(ComparePageTest, NothingIsFetched) {
  const std::string page = Page({});
  for (const char* part : {"http:", "https:", "src=", "<link", "<script", "url(", "@import"})
    EXPECT_FALSE(Has(page, part)) << part;
  EXPECT_TRUE(Has(page, "prefers-color-scheme: dark"));
}

TEST(ComparePageTest, OutputsAndClassesAreOnCards) {
  analyser::CompareReport report;
  report.outputs = {Value("scores", 31.257), Value("mask", kInfinite)};
  report.outputs[0].cosine = 0.99962;
  report.outputs[0].max_error = 0.125;
  report.outputs[1].elements = 0;
  analyser::Accuracy& accuracy = report.accuracy.emplace();
  accuracy.rows = 8;
  accuracy.agreement = 0.875;
  std::string page = Page(report);
  EXPECT_TRUE(Has(page, "output scores<b>31.26 dB</b>cosine 0.999620, max error 0.125")) << page;
  EXPECT_TRUE(Has(page, "output mask<b>&ndash;</b>nothing to compare")) << page;
  EXPECT_TRUE(Has(page, "<b>87.50 %</b>of 8 rows"));
  EXPECT_FALSE(Has(page, "Top-1"));
  accuracy.reference_top1 = 0.75;
  accuracy.other_top1 = 0.5;
  page = Page(report);
  EXPECT_TRUE(Has(page, "Top-1<b>50.00 %</b>the reference 75.00 %, -25.00 points")) << page;
  EXPECT_FALSE(Has(page, "Top-5"));
}

TEST(ComparePageTest, WithoutLayersItSaysHowToGetThem) {
  const std::string page = Page({});
  EXPECT_TRUE(Has(page, "--layers"));
  EXPECT_FALSE(Has(page, "<svg") || Has(page, "<table"));
}

TEST(ComparePageTest, EveryLayerHasABarInOrder) {
  analyser::CompareReport report;
  for (int i = 0; i < 200; ++i)
    report.layers.push_back(Value("l" + std::to_string(i), 50 - 0.1 * i));
  std::string page = Page(report);
  EXPECT_EQ(Count(page, "<rect"), 200U);
  EXPECT_EQ(Count(page, "<rect class=\"worst\""), 10U);
  EXPECT_LT(page.find(">l0<"), page.find(">l1<"));
  EXPECT_LT(page.find(">l198<"), page.find(">l199<"));
  EXPECT_FALSE(Has(page, "saturated %"));

  report.layers[7].saturation = 0.0125;
  page = Page(report);
  EXPECT_EQ(Count(page, "<rect class=\"saturation\""), 1U);
  EXPECT_EQ(Count(page, "<rect"), 201U);
  EXPECT_TRUE(Has(page, "saturated %"));
  EXPECT_TRUE(Has(page, ">1.250 %<"));
}

TEST(ComparePageTest, WorstIsWhatIsNoNumber) {
  analyser::CompareReport report;
  report.layers = {Value("low", -12),       Value("high", 40),         Value("equal", kInfinite),
                   Value("nan", kNoNumber), Value("none", -kInfinite), Value("empty", kInfinite)};
  for (int i = 0; i < 6; ++i) report.layers.push_back(Value("fill", 30));
  report.layers[5].elements = 0;
  const std::string page = Page(report);
  EXPECT_EQ(Count(page, "<rect class=\"broken\" x=\"0.00%\" y=\"4\" width=\"100.00%\""), 2U)
      << page;
  EXPECT_EQ(Count(page, "<rect class=\"equal\""), 1U);
  EXPECT_EQ(Count(page, "<rect"), 11U);  // nothing for the empty one
  for (const char* shown : {">-12.00<", ">inf<", ">NaN<", ">-inf<", ">&ndash;<"})
    EXPECT_TRUE(Has(page, shown)) << shown;
  // -20 to 40 dB: zero is at a third.
  EXPECT_TRUE(Has(page, "<rect class=\"worst\" x=\"13.33%\" y=\"4\" width=\"20.00%\"")) << page;
  const std::string worst = page.substr(page.find("The worst layers"));
  EXPECT_LT(worst.find(">nan<"), worst.find(">none<"));
  EXPECT_LT(worst.find(">none<"), worst.find(">low<"));
  EXPECT_FALSE(Has(worst, ">equal<") || Has(worst, ">high<") || Has(worst, ">empty<"));
}

TEST(ComparePageTest, OneLayerWithoutErrorIsNotAmongTheWorst) {
  analyser::CompareReport report;
  report.layers = {Value("only", kInfinite)};
  const std::string page = Page(report);
  EXPECT_EQ(Count(page, "<rect"), 1U);
  EXPECT_FALSE(Has(page, "The worst layers"));
}

}  // namespace
}  // namespace quench::cli::compare_page_test
