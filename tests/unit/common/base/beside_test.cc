#include "common/base/beside.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace quench::beside_test {
namespace {

TEST(BesideTest, RunsBoth) {
  int aside = 0, work = 0;
  RunBeside([&] { aside = 1; }, [&] { work = 2; });
  EXPECT_EQ(aside, 1);
  EXPECT_EQ(work, 2);
}

TEST(BesideTest, BothRunAtTheSameTime) {
  std::latch both(2);
  RunBeside([&] { both.arrive_and_wait(); }, [&] { both.arrive_and_wait(); });
}

// However many ask, and whatever runs aside asks again.
TEST(BesideTest, NobodyWaitsForAHelper) {
  constexpr int kCallers = 16, kRounds = 200;
  std::atomic<int> ran = 0;
  std::vector<std::jthread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        RunBeside([&] { RunBeside([&] { ++ran; }, [&] { ++ran; }); }, [&] { ++ran; });
      }
    });
  }
  callers.clear();
  EXPECT_EQ(ran, 3 * kCallers * kRounds);
}

}  // namespace
}  // namespace quench::beside_test
