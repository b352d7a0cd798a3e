#include "services/codegen/targets/core_costs.h"

#include <gtest/gtest.h>

#include "services/codegen/targets/resolve.h"

namespace quench::codegen::core_costs_test {
namespace {

Target Of(const std::string& text) {
  const absl::StatusOr<std::vector<Target>> targets = ResolveTarget(text);
  EXPECT_TRUE(targets.ok()) << text << ": " << targets.status();
  return targets.ok() ? targets->back() : Target{};
}

struct Row {
  const char* name;
  CoreCosts costs;
};
constexpr Row kRows[] = {
#define QUENCH_CORE(name, ...) {name, {__VA_ARGS__}},
#include "services/codegen/targets/cores.def"
#undef QUENCH_CORE
};

TEST(CoreCostsTest, TheFirstRowIsWithoutName) {
  EXPECT_STREQ(kRows[0].name, "");
  for (size_t i = 1; i < std::size(kRows); ++i) EXPECT_STRNE(kRows[i].name, "");
}

// Targets without a row of their own must not change when others get one.
TEST(CoreCostsTest, UnknownCpusHaveTheFirstRow) {
  const CoreCosts& costs = CostsOf("a CPU of 2040");
  EXPECT_EQ(costs.multiply_adds, 2);
  EXPECT_EQ(costs.latency, 4);
  EXPECT_EQ(costs.loads, 2);
  EXPECT_EQ(costs.pixel_load, 0.05);
  EXPECT_EQ(costs.vector_load, 0.11);
  EXPECT_EQ(costs.tile_start, 16);
  EXPECT_EQ(costs.sum_end, 1.5);
  EXPECT_EQ(costs.gflops, 0);
  EXPECT_EQ(costs.gbytes, 0);
}

TEST(CoreCostsTest, RowsAreFoundByTheNameOfTheCpu) {
  for (const Row& row : kRows) EXPECT_EQ(CostsOf(row.name), row.costs) << row.name;
}

TEST(CoreCostsTest, EveryRowCanBeDividedBy) {
  for (const Row& row : kRows) {
    EXPECT_GT(row.costs.multiply_adds, 0) << row.name;
    EXPECT_GT(row.costs.loads, 0) << row.name;
  }
}

TEST(CoreCostsTest, GenericTargetsHaveTheFirstRow) {
  for (const char* name : {"host", "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-fp16",
                           "aarch64", "armv7", "llvm -mtriple=x86_64-linux-gnu"}) {
    EXPECT_EQ(Of(name).costs, CostsOf("")) << name;
  }
  EXPECT_EQ(Of("x86-64-v4").gflops, 160);  // derived from features
  EXPECT_EQ(Of("x86-64-v4").gbytes, 12);
}

TEST(CoreCostsTest, ATargetHasTheRowOfItsCpu) {
  const Target target = Of("llvm -mtriple=x86_64-linux-gnu -mcpu=emeraldrapids");
  EXPECT_EQ(target.costs, CostsOf("emeraldrapids"));
  EXPECT_EQ(target.FlopsPerCycle(16), 2 * target.costs.multiply_adds * 16);
}

}  // namespace
}  // namespace quench::codegen::core_costs_test
