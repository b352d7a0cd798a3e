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

TEST(CoreCostsTest, OnlyTheFirstRowIsWithoutName) {
  for (size_t i = 0; i < CoreRows().size(); ++i)
    EXPECT_EQ(CoreRows()[i].cpu == std::string(), i == 0);
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
  const CoreRow rows[] = {{"", {2, 4}}, {"znver9", {4, 3}}, {"znver99", {8, 5}}};
  EXPECT_EQ(CostsOf("znver9", rows), rows[1].costs);
  EXPECT_EQ(CostsOf("znver99", rows), rows[2].costs);
  EXPECT_EQ(CostsOf("znver", rows), rows[0].costs);
  for (const CoreRow& row : CoreRows()) EXPECT_EQ(CostsOf(row.cpu), row.costs) << row.cpu;
}

TEST(CoreCostsTest, EveryRowCanBeDividedBy) {
  for (const CoreRow& row : CoreRows()) {
    EXPECT_GT(row.costs.multiply_adds, 0) << row.cpu;
    EXPECT_GT(row.costs.loads, 0) << row.cpu;
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
  for (const CoreRow& row : CoreRows()) {
    if (row.cpu == std::string()) continue;
    const std::string name = row.cpu;
    bool known = false;  // in some architecture
    for (const char* triple : {"x86_64-linux-gnu", "aarch64-linux-gnu", "armv7-linux-gnueabihf"}) {
      const auto targets = ResolveTarget("llvm -mtriple=" + std::string(triple) + " -mcpu=" + name);
      if (!targets.ok()) continue;
      known = true;
      EXPECT_EQ(targets->back().costs, row.costs) << name;
    }
    EXPECT_TRUE(known) << name;
  }
  EXPECT_EQ(Of("x86-64-v4").FlopsPerCycle(16), 64);
}

}  // namespace
}  // namespace quench::codegen::core_costs_test
