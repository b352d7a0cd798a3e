#include "common/steps/disk_watch.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "tests/support/matchers.h"

namespace quench::steps::disk_watch_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr int64_t kMib = int64_t{1} << 20;

class DiskWatchTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, int64_t mebibytes) {
    std::ofstream(folder_.path() / name) << std::string(mebibytes * kMib, 'x') << std::flush;
  }
  std::unique_ptr<DiskWatch> Watch(int64_t most) {
    return std::make_unique<DiskWatch>(std::vector{folder_.path()}, most, now_,
                                       [this] { return disk_; });
  }
  // As soon as it is due.
  absl::Status Look(DiskWatch& watch) {
    now_ += watch.UntilNextLook(now_);
    return watch.Look(now_);
  }

  const TempDir folder_ = *TempDir::Create();
  DiskWatch::Clock::time_point now_ = DiskWatch::Clock::now();
  DiskWatch::Disk disk_{1000 << 20, 100 << 20};
};

TEST_F(DiskWatchTest, TheLessIsLeftTheSoonerItLooksAgain) {
  disk_.free_bytes = int64_t{100} << 30;
  const auto watch = Watch(int64_t{50} << 30);
  EXPECT_EQ(watch->UntilNextLook(now_), seconds(1));
  EXPECT_TRUE(Look(*watch).ok());
  EXPECT_EQ(watch->UntilNextLook(now_), seconds(1));
  disk_.free_bytes = disk_.reserve_bytes + (int64_t{1} << 30);  // of the disk
  EXPECT_TRUE(Look(*watch).ok());
  EXPECT_LE(watch->UntilNextLook(now_), milliseconds(250));
  disk_.free_bytes = 0;
  EXPECT_TRUE(Look(*watch).ok()) << "who has written nothing has not taken it";
  EXPECT_LT(watch->UntilNextLook(now_), milliseconds(250));
}

TEST_F(DiskWatchTest, LooksWhenItIsTime) {
  const auto watch = Watch(kMib);
  Write("a", 2);
  EXPECT_TRUE(watch->Look(now_).ok());
  EXPECT_LE(watch->UntilNextLook(now_), milliseconds(20));
  const absl::Status status = Look(*watch);
  EXPECT_EQ(rpc::ReasonOf(status), "RESOURCE_LIMIT");
  EXPECT_THAT(MessageOf(status), HasSubstr("more than the 1 MiB"));
}

TEST_F(DiskWatchTest, WhatOthersNeedOfTheDiskIsNotTakenFromThem) {
  const auto watch = Watch(100 * kMib);
  Write("a", 20);
  disk_.free_bytes = 99 * kMib;
  EXPECT_TRUE(Look(*watch).ok()) << "somebody else has taken more";
  disk_.free_bytes = 19 * kMib;
  const absl::Status status = Look(*watch);
  EXPECT_EQ(rpc::ReasonOf(status), "NODE_FAULT");
  EXPECT_THAT(MessageOf(status), HasSubstr("wrote 20 MiB, and 19 MiB are left"));
}

TEST_F(DiskWatchTest, WithoutALimitNothingIsLookedAt) {
  const auto watch = Watch(0);
  Write("a", 1);
  disk_.free_bytes = 0;
  EXPECT_EQ(watch->UntilNextLook(now_), milliseconds::max());
  EXPECT_TRUE(watch->Look(now_ + seconds(100)).ok());
}

}  // namespace
}  // namespace quench::steps::disk_watch_test
