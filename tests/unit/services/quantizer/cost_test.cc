// Costs of one computation against another.
#include "services/quantizer/cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/codegen/codegen.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/quantizer/support.h"

namespace quench::quantizer::cost_test {
namespace {

using ::quench::testing::HasSubstr;
using ::quench::testing::RandomTensor;

Tensor Scores(const std::vector<float>& values) {
  return Tensor::Of(DataType::kF32, {static_cast<int64_t>(values.size()) / 2, 2}, values);
}

TEST(ScoreTest, DropIsAgainstLabelsOrTheFloatModel) {
  const std::vector<int64_t> none, labels = {0, 1};
  const Tensor a = Scores({2, 1, 1, 2}), b = Scores({1, 2, 1, 2});
  Score plain(none);
  ASSERT_TRUE(plain.Add({a}, {b}).ok());
  EXPECT_EQ(*plain.cost().drop, 0.5);
  EXPECT_NEAR(plain.cost().sqnr_db, 10 * std::log10(10.0 / 2), 1e-9);
  Score better(labels);  // the other one is right where float is wrong
  ASSERT_TRUE(better.Add({b}, {a}).ok());
  EXPECT_EQ(*better.cost().drop, -0.5);
}

TEST(ScoreTest, BudgetsHoldWhereEveryLimitDoes) {
  const Cost cost{25, 0.01};
  EXPECT_TRUE(Holds({0.01, 25}, cost));
  EXPECT_FALSE(Holds({0.005, 25}, cost));
  EXPECT_FALSE(Holds({0.01, 25.5}, cost));
  EXPECT_FALSE(Holds({0.01, std::nullopt}, {25, std::nullopt})) << "nobody knows the drop";
  EXPECT_EQ(CostText(cost), "25.00 dB, drop 1.00 %");
}

TEST(ScoreTest, LabelsMustBeAsManyAsRows) {
  const std::vector<int64_t> labels = {0, 1, 1};
  Score score(labels);
  ASSERT_TRUE(score.Add({Scores({2, 1, 1, 2})}, {Scores({2, 1, 1, 2})}).ok());
  EXPECT_THAT(MessageOf(score.Check({0.1, std::nullopt})), HasSubstr("3 labels for 2 rows"));
}

// A library against itself costs nothing; against one whose last layer is rounded to bf16, little.
TEST(CostMeterTest, MeasuresLibraries) {
  const TempDir folder = *TempDir::Create();
  const Graph graph = ResidualNetwork();
  codegen::CompileOptions halves;
  passes::PassOptions passes;
  passes.store_as = DataType::kBF16;
  const absl::StatusOr<Graph> rounded = passes::RunPipeline(graph, passes, {});
  ASSERT_TRUE(rounded.ok()) << rounded.status();
  ASSERT_TRUE(codegen::Compile(graph, {}, folder.path() / "a.so", folder.path() / "a.h").ok());
  ASSERT_TRUE(
      codegen::Compile(*rounded, halves, folder.path() / "b.so", folder.path() / "b.h").ok());
  const auto a = Artifact::Open(folder.path() / "a.so"), b = Artifact::Open(folder.path() / "b.so");
  ASSERT_TRUE(a.ok() && b.ok());
  std::vector<Tensor> tensors;
  for (uint64_t seed = 0; seed < 4; ++seed) tensors.push_back(RandomTensor({1, 3, 8, 8}, seed));
  const Given samples(tensors);
  const Budget budget{std::nullopt, 20};
  const std::vector<int64_t> labels;
  CostMeter meter(**a, samples, budget, labels);
  const auto same = meter.Of(**a, "same", {}), other = meter.Of(**b, "other", {});
  ASSERT_TRUE(same.ok() && other.ok());
  EXPECT_TRUE(std::isinf(same->sqnr_db));
  EXPECT_EQ(CostText({same->sqnr_db, std::nullopt}), "exact");
  EXPECT_GT(other->sqnr_db, 20);
  EXPECT_LT(other->sqnr_db, 80);
}

}  // namespace
}  // namespace quench::quantizer::cost_test
