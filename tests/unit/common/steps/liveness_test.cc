#include "common/steps/liveness.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "quench/child/v1/child.pb.h"

namespace quench::steps::liveness_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class LivenessTest : public ::testing::Test {
 protected:
  // One more second, in which the process used `cpu` and asked the disk so often.
  bool StalledAfter(milliseconds cpu, int64_t disk = 0) {
    now_ += seconds(1);
    pulse_.set_cpu_microseconds(pulse_.cpu_microseconds() + cpu.count() * 1000);
    pulse_.set_disk_accesses(pulse_.disk_accesses() + disk);
    liveness_.OnPulse(pulse_, now_);
    return liveness_.IsStalled(now_);
  }

  Liveness::Clock::time_point now_ = Liveness::Clock::now();
  child::v1::Pulse pulse_;
  Liveness liveness_{seconds(60), now_};
};

TEST_F(LivenessTest, WorkIsCpuDiskOrNews) {
  for (int i = 0; i < 200; ++i) ASSERT_FALSE(StalledAfter(milliseconds(30)));
  for (int i = 0; i < 200; ++i) ASSERT_FALSE(StalledAfter(milliseconds(0), 1));
  for (int i = 0; i < 200; ++i) {
    liveness_.OnProgress();
    ASSERT_FALSE(StalledAfter(milliseconds(0)));
  }
  int left = 0;
  while (!StalledAfter(milliseconds(1)) && left < 100) ++left;  // threads that wake up to look
  EXPECT_GE(left, 58);
  EXPECT_LE(left, 60);
}

TEST_F(LivenessTest, WorkNowAndThenIsEnough) {
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(StalledAfter(milliseconds(i % 50 == 0 ? 500 : 0))) << i;
  }
}

TEST_F(LivenessTest, TimeInWhichWeWereStoppedIsNotTheChilds) {
  EXPECT_FALSE(StalledAfter(milliseconds(500)));
  now_ += std::chrono::hours(1);
  EXPECT_FALSE(liveness_.IsStalled(now_));
}

TEST_F(LivenessTest, WhoIsInTurnIsAskedAboutAgainLater) {
  while (!StalledAfter(milliseconds(0))) {
  }
  liveness_.Spare();
  int left = 0;
  while (!StalledAfter(milliseconds(0)) && left < 100) ++left;
  EXPECT_GE(left, 4);
  EXPECT_LE(left, 7);
}

TEST_F(LivenessTest, WithoutALimitNothingStalls) {
  Liveness liveness(seconds(0), now_);
  EXPECT_FALSE(liveness.IsStalled(now_ + std::chrono::hours(100)));
}

TEST(HasThreadInTurnTest, AskingItselfIsRunning) {
  EXPECT_TRUE(HasThreadInTurn(::getpgrp()));
  EXPECT_FALSE(HasThreadInTurn(-1));
}

}  // namespace
}  // namespace quench::steps::liveness_test
