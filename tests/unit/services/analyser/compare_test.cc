#include "services/analyser/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/codegen/codegen.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"

namespace quench::analyser::compare_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::HasSubstr;

class Given final : public Samples {
 public:
  explicit Given(std::vector<std::vector<float>> rows) : rows_(std::move(rows)) {}
  int64_t count() const override { return static_cast<int64_t>(rows_.size()); }
  absl::StatusOr<std::vector<Tensor>> Read(int64_t sample) const override {
    const std::vector<float>& row = rows_[static_cast<size_t>(sample)];
    return std::vector<Tensor>{
        Tensor::Of(DataType::kF32, {1, static_cast<int64_t>(row.size())}, row)};
  }
  std::string NameOf(int64_t sample) const override { return std::to_string(sample); }

 private:
  std::vector<std::vector<float>> rows_;
};

class CompareTest : public ::testing::Test {
 protected:
  // x -> x * factors -> y, by way of `half`: x * factors / 2.
  std::filesystem::path Build(const std::vector<float>& factors, bool taps = false,
                              const std::string& output = "y") {
    Graph graph;
    const auto classes = static_cast<int64_t>(factors.size());
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, classes}));
    const ValueId scaled = Add(
        graph, "Mul", {x, graph.AddConstant("f", Tensor::Of(DataType::kF32, {classes}, factors))});
    const ValueId half =
        Add(graph, "Mul", {scaled, graph.AddConstant("h", Tensor::ScalarF32(0.5F))}, {}, "half");
    graph.outputs = {
        Add(graph, "Mul", {half, graph.AddConstant("t", Tensor::ScalarF32(2))}, {}, output)};
    codegen::CompileOptions options;
    options.taps = taps ? codegen::Taps::kModelValues : codegen::Taps::kNone;
    options.opt_level = taps ? 2 : 3;
    const std::filesystem::path library =
        folder_.path() / ("library" + std::to_string(libraries_++) + ".so");
    const absl::Status status =
        codegen::Compile(graph, options, library, folder_.path() / "model.h").status();
    EXPECT_TRUE(status.ok()) << status;
    return library;
  }

 private:
  const TempDir folder_ = *TempDir::Create();
  int libraries_ = 0;
};

TEST_F(CompareTest, FilesStandForAReference) {
  const Given inputs({{1, 2, -4}, {0, 3, 1}}), outputs({{1, 2, -4}, {0, 3, 1.5F}});
  const std::filesystem::path library = Build({1, 1, 1});
  const auto report = CompareWithFiles(outputs, library, inputs, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 2);
  EXPECT_FLOAT_EQ(static_cast<float>(report->outputs[0].max_error), 0.5F);
  EXPECT_EQ(report->first_divergence, "y");
  EXPECT_EQ(CompareWithFiles(outputs, library, inputs, {.tolerance = 0.2})->first_divergence, "");
  EXPECT_THAT(MessageOf(CompareWithFiles(Given({{1, 2, 3}}), library, inputs, {}).status()),
              HasSubstr("there are outputs of 1 samples, and inputs of 2"));
  EXPECT_THAT(MessageOf(CompareWithFiles(Given({{1, 2}, {3, 4}}), library, inputs, {}).status()),
              HasSubstr("output `y` is [1, 2] in the reference and [1, 3] in the other"));
}

TEST_F(CompareTest, DivergenceIsWhereLayersPart) {
  const Given samples({{1, 2, 3}});
  const auto same =
      Compare(Build({1, 2, 3}, true), Build({1, 2, 3}, true), samples, {.layers = true});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->first_divergence, "");
  EXPECT_TRUE(same->reference_only.empty());
  const auto other =
      Compare(Build({1, 2, 3}, true), Build({1, 2, 4}, true), samples, {.layers = true});
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_FALSE(other->layers.empty());
  EXPECT_EQ(other->first_divergence, other->layers[0].value);
  EXPECT_THAT(ToTable(*other), HasSubstr("diverges   first at " + other->layers[0].value +
                                         ": a relative error above 0.001\n"));
  EXPECT_EQ(nlohmann::json::parse(ToJson(*other)).at("first_divergence"), other->layers[0].value);
}

TEST_F(CompareTest, TheWorstLayersComeFirst) {
  CompareReport report;
  for (const auto& [name, error] : {std::pair{"a", 0.1}, std::pair{"b", 0.3},
                                    std::pair{"c", std::nan("")}, std::pair{"d", 0.2}}) {
    ValueComparison& layer = report.layers.emplace_back();
    layer.value = name;
    layer.error = error;
  }
  CompareReport all = report;
  KeepWorst(4, all);
  EXPECT_EQ(all.all_layers, 0);
  EXPECT_EQ(all.layers[3].value, "a");
  KeepWorst(3, report);
  ASSERT_EQ(report.layers.size(), 3u);
  EXPECT_EQ(report.layers[0].value, "c");
  EXPECT_EQ(report.layers[1].value, "b");
  EXPECT_EQ(report.layers[2].value, "d");
  EXPECT_THAT(ToTable(report), HasSubstr("layer (the worst 3 of 4) "));
  EXPECT_EQ(nlohmann::json::parse(ToJson(report)).at("all_layers"), 4);
}

TEST_F(CompareTest, ProgressEndsAtItsEnd) {
  std::vector<Progress> seen;
  const StepContext context(std::make_shared<CancelToken>(),
                            [&](const Progress& progress) { seen.push_back(progress); });
  const Given samples({{1, 2, 3}, {4, 5, 6}});
  ASSERT_TRUE(Compare(Build({1, 2, 3}), Build({1, 2, 3}), samples, {}, context).ok());
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back().done, 2);
  EXPECT_EQ(seen.back().total, 2);
}

TEST_F(CompareTest, NoiseIsThatOfTheFormulas) {
  const Given samples({{1, 2, -4}, {0, 3, 0.5F}});
  const auto report = Compare(Build({1, 1, 1}), Build({1.5F, 1.5F, 1.5F}), samples, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 2);
  ASSERT_EQ(report->outputs.size(), 1u);
  const ValueComparison& y = report->outputs[0];
  EXPECT_EQ(y.value, "y");
  EXPECT_EQ(y.elements, 6);
  EXPECT_NEAR(y.sqnr_db, 20 * std::log10(2), 1e-6);  // the noise is half of the signal
  EXPECT_NEAR(y.cosine, 1, 1e-9);
  EXPECT_FLOAT_EQ(static_cast<float>(y.max_error), 2);
  EXPECT_FLOAT_EQ(static_cast<float>(y.error), 0.5F);
  EXPECT_NEAR(y.mean_error, 10.5 / 2 / 6, 1e-6);
  EXPECT_EQ(report->first_divergence, "y");
  EXPECT_FALSE(y.saturation.has_value());
  EXPECT_TRUE(report->layers.empty());
}

TEST_F(CompareTest, WhatIsEqualHasNoNoise) {
  const Given samples({{1, 2, -4}});
  const auto same = Compare(Build({1, 1, 1}), Build({1, 1, 1}), samples, {});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(std::isinf(same->outputs[0].sqnr_db));
  EXPECT_EQ(same->outputs[0].max_error, 0);
  // Nothing but zeros on both sides, and on one.
  const Given zeros({{0, 0, 0}});
  const auto none = Compare(Build({1, 1, 1}), Build({2, 2, 2}), zeros, {});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->outputs[0].cosine, 1);
  const auto one = Compare(Build({1, 1, 1}), Build({0, 0, 0}), samples, {});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->outputs[0].cosine, 0);
  EXPECT_NEAR(one->outputs[0].sqnr_db, 0, 1e-9);  // all of the signal is lost
}

// The other gives another class for the last of three rows; labels say which one is right.
TEST_F(CompareTest, ClassesAreCounted) {
  const Given samples({{5, 1, 1}, {1, 5, 1}, {3, 1, 2}});
  CompareOptions options;
  options.labels = {0, 0, 2};
  const auto report = Compare(Build({1, 1, 1}), Build({1, 1, 2}), samples, options);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->accuracy.has_value());
  EXPECT_EQ(report->accuracy->rows, 3);
  EXPECT_NEAR(report->accuracy->agreement, 2.0 / 3, 1e-12);
  EXPECT_NEAR(report->accuracy->reference_top1.value_or(-1), 1.0 / 3, 1e-12);
  EXPECT_NEAR(report->accuracy->other_top1.value_or(-1), 2.0 / 3, 1e-12);
  const nlohmann::json json = nlohmann::json::parse(ToJson(*report));
  EXPECT_NEAR(json.at("accuracy").at("agreement").get<double>(), 2.0 / 3, 1e-9);
  EXPECT_PRED1(HasSubstr("66.67 % of 3 rows"), ToTable(*report));
}

TEST_F(CompareTest, LayersAreMatchedByName) {
  const Given samples({{1, 2, -4}});
  CompareOptions options;
  options.layers = true;
  const auto report = Compare(Build({1, 1, 1}, true), Build({1, 1, 3}, true), samples, options);
  ASSERT_TRUE(report.ok()) << report.status();
  const auto half = std::find_if(report->layers.begin(), report->layers.end(),
                                 [](const ValueComparison& each) { return each.value == "half"; });
  ASSERT_NE(half, report->layers.end());
  EXPECT_FLOAT_EQ(static_cast<float>(half->max_error), 4);  // |-4 * 1 - -4 * 3| / 2
}

TEST_F(CompareTest, WhatDoesNotFitIsNamed) {
  const Given samples({{1, 2, -4}});
  const auto library = Build({1, 1, 1});
  EXPECT_PRED1(HasSubstr("`z`"),
               MessageOf(Compare(library, Build({1, 1, 1}, false, "z"), samples, {}).status()));
  CompareOptions options;
  options.labels = {0, 1};
  EXPECT_PRED1(HasSubstr("2 labels"),
               MessageOf(Compare(library, library, samples, options).status()));
}

}  // namespace
}  // namespace quench::analyser::compare_test
