// Turns of tenants that wait for one service.
#include "services/gateway/fair_queue.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/matchers.h"

namespace quench::gateway::fair_queue_test {
namespace {

using quench::testing::ElementsAre;

constexpr auto kService = metrics::Service::kCodegen;

class QueueTurnsTest : public ::testing::Test {
 protected:
  void Add(FairQueue& queue, const std::string& tenant, int count, int priority = 0) {
    for (int i = 0; i < count; ++i) {
      queue.Add({{tenant, static_cast<int>(order_)},
                 kService,
                 metrics::Stage::kCompile,
                 tenant,
                 order_,
                 0,
                 priority});
      ++order_;
    }
  }
  // The tenants of the next turns at a service with one slot.
  static std::vector<std::string> Turns(FairQueue& queue, int count) {
    std::vector<std::string> tenants;
    for (int i = 0; i < count; ++i) {
      const std::optional<FairQueue::Entry> entry = queue.Pop(kService);
      if (!entry) break;
      queue.Started(entry->tenant, kService);
      queue.Ended(entry->tenant, kService);
      tenants.push_back(entry->tenant);
    }
    return tenants;
  }
  uint64_t order_ = 1;
};

TEST_F(QueueTurnsTest, AtOneSlotTenantsTakeTurnsWhoeverCameFirst) {
  FairQueue queue;
  Add(queue, "fleet", 100);
  EXPECT_THAT(Turns(queue, 3), ElementsAre("fleet", "fleet", "fleet"));
  Add(queue, "one", 2);
  EXPECT_THAT(Turns(queue, 5), ElementsAre("one", "fleet", "one", "fleet", "fleet"));
}

TEST_F(QueueTurnsTest, ATenantWithAStepAtATimeHasNoMoreThanItsPart) {
  FairQueue queue;
  Add(queue, "fleet", 100);
  int of_fleet = 0;
  for (int i = 0; i < 40; ++i) {
    Add(queue, "one", 1);
    for (const std::string& tenant : Turns(queue, 1)) of_fleet += tenant == "fleet" ? 1 : 0;
  }
  EXPECT_EQ(of_fleet, 20);
}

TEST_F(QueueTurnsTest, TurnsGoByWeight) {
  FairQueue queue({1, 0}, {{"heavy", {3, 0}}});
  Add(queue, "light", 40);
  Add(queue, "heavy", 40);
  const std::vector<std::string> turns = Turns(queue, 40);
  EXPECT_EQ(std::count(turns.begin(), turns.end(), "heavy"), 30);
}

TEST_F(QueueTurnsTest, ATenantAtItsLimitSavesUpNoTurns) {
  FairQueue queue({1, 0}, {{"limited", {1, 1}}});
  queue.Started("limited", metrics::Service::kAnalyser);
  Add(queue, "limited", 100);
  Add(queue, "other", 200);
  for (const std::string& tenant : Turns(queue, 100)) EXPECT_EQ(tenant, "other");
  queue.Ended("limited", metrics::Service::kAnalyser);
  const std::vector<std::string> turns = Turns(queue, 20);
  EXPECT_NEAR(std::count(turns.begin(), turns.end(), "other"), 10, 1);
}

TEST_F(QueueTurnsTest, ARefusedStepCostsNoTurn) {
  FairQueue queue;
  Add(queue, "a", 10);
  Add(queue, "b", 10);
  for (int i = 0; i < 5; ++i) {
    const std::optional<FairQueue::Entry> entry = queue.Pop(kService);
    EXPECT_EQ(entry->tenant, "a");
    queue.Refused(entry->tenant, kService);
    queue.Add(*entry);
  }
  EXPECT_THAT(Turns(queue, 4), ElementsAre("a", "b", "a", "b"));
}

TEST_F(QueueTurnsTest, ATenantsStepsGoByPriority) {
  FairQueue queue;
  Add(queue, "a", 1, -1);
  Add(queue, "a", 1, 5);
  EXPECT_EQ(queue.Pop(kService)->priority, 5);
  EXPECT_EQ(queue.Pop(kService)->priority, -1);
  EXPECT_FALSE(queue.Pop(kService).has_value());
}

}  // namespace
}  // namespace quench::gateway::fair_queue_test
