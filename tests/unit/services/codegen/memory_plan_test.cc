#include "services/codegen/plan/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

namespace quench::codegen::memory_plan_test {
namespace {

bool Live(const ArenaItem& a, const ArenaItem& b) { return a.begin <= b.end && b.begin <= a.end; }

int64_t Rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

void ExpectDisjoint(const std::vector<ArenaItem>& items, const std::vector<int64_t>& offsets) {
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(offsets[i] % kArenaAlignment, 0);
    for (size_t j = i + 1; j < items.size(); ++j) {
      if (!Live(items[i], items[j]) || items[i].bytes == 0 || items[j].bytes == 0) continue;
      EXPECT_TRUE(offsets[i] + items[i].bytes <= offsets[j] ||
                  offsets[j] + items[j].bytes <= offsets[i])
          << "items " << i << " and " << j;
    }
  }
}

std::vector<ArenaItem> RandomItems(uint32_t seed, int count) {
  std::mt19937 random(seed);
  std::vector<ArenaItem> items;
  for (int i = 0; i < count; ++i) {
    const int begin = static_cast<int>(random() % 40);
    items.push_back(
        {static_cast<int64_t>(random() % 5000), begin, begin + static_cast<int>(random() % 8)});
  }
  return items;
}

TEST(MemoryPlanTest, ChainUsesTwoBuffers) {
  std::vector<ArenaItem> chain;
  for (int i = 0; i < 20; ++i) chain.push_back({1024, i, i + 1});
  const ArenaPlan plan = PlanArena(chain);
  ExpectDisjoint(chain, plan.offsets);
  EXPECT_EQ(plan.bytes, 2048);
  EXPECT_EQ(plan.lower_bound, 2048);
}

TEST(MemoryPlanTest, NothingNeedsNothing) {
  const ArenaPlan plan = PlanArena({});
  EXPECT_EQ(plan.bytes, 0);
  EXPECT_EQ(plan.lower_bound, 0);
}

TEST(MemoryPlanTest, RandomPlansAreDisjointAndCloseToTheBound) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<ArenaItem> items = RandomItems(seed, 60);
    const ArenaPlan plan = PlanArena(items);
    ExpectDisjoint(items, plan.offsets);
    EXPECT_GE(plan.bytes, plan.lower_bound);
    EXPECT_LE(static_cast<double>(plan.bytes), 1.25 * static_cast<double>(plan.lower_bound))
        << "seed " << seed;
    EXPECT_EQ(PlanArena(items).offsets, plan.offsets);  // deterministic
  }
}

// Offsets as the emitted plan function computes them.
std::vector<int64_t> Stack(const StackingOrder& stacking, const std::vector<ArenaItem>& items,
                           int64_t& bytes) {
  std::vector<int64_t> offsets(items.size(), 0);
  bytes = 0;
  for (const int item : stacking.order) {
    const auto at = static_cast<size_t>(item);
    for (const int below : stacking.below[at]) {
      const auto under = static_cast<size_t>(below);
      offsets[at] = std::max(offsets[at], offsets[under] + Rounded(items[under].bytes));
    }
    bytes = std::max(bytes, offsets[at] + Rounded(items[at].bytes));
  }
  return offsets;
}

TEST(MemoryPlanTest, StackingHoldsAtEverySize) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::vector<ArenaItem> items = RandomItems(seed, 40);
    const ArenaPlan plan = PlanArena(items);
    const StackingOrder stacking = StackingOf(items, plan);
    int64_t bytes = 0;
    ExpectDisjoint(items, Stack(stacking, items, bytes));
    EXPECT_LE(bytes, plan.bytes) << "seed " << seed;
    std::mt19937 random(seed);
    for (int round = 0; round < 5; ++round) {
      for (ArenaItem& item : items) item.bytes = static_cast<int64_t>(random() % 20000);
      ExpectDisjoint(items, Stack(stacking, items, bytes));
    }
  }
}

TEST(MemoryPlanTest, LargestLiveSetIsTheLowerBound) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<ArenaItem> items = RandomItems(seed, 40);
    int64_t most = 0;
    for (const std::vector<int>& live : MaximalLiveSets(items)) {
      int64_t sum = 0;
      for (const int item : live) sum += Rounded(items[static_cast<size_t>(item)].bytes);
      most = std::max(most, sum);
    }
    EXPECT_EQ(most, PlanArena(items).lower_bound) << "seed " << seed;
  }
}

}  // namespace
}  // namespace quench::codegen::memory_plan_test
