#include "common/steps/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace quench::steps::scratch_test {
namespace {

size_t EntriesIn(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                           std::filesystem::directory_iterator()));
}

TEST(ScratchFolderTest, GoesWithItsServer) {
  const TempDir parent = *TempDir::Create();
  {
    auto scratch = ScratchFolder::Create(parent.path());
    ASSERT_TRUE(scratch.ok()) << scratch.status();
    {
      const auto step = scratch->Step();
      ASSERT_TRUE(step.ok());
      EXPECT_TRUE(WriteFileAtomically(step->path() / "file", "x").ok());
      EXPECT_EQ(EntriesIn(scratch->path()), 2u);  // and the lock
    }
    EXPECT_EQ(EntriesIn(scratch->path()), 1u);
  }
  EXPECT_EQ(EntriesIn(parent.path()), 0u);
}

TEST(ScratchFolderTest, RemovesWhatAKilledServerLeftAndNothingElse) {
  const TempDir parent = *TempDir::Create();
  std::filesystem::create_directories(parent.path() / "quench-steps-killed" / "step");
  ASSERT_TRUE(WriteFileAtomically(parent.path() / "quench-steps-killed" / "lock", "").ok());
  std::filesystem::create_directories(parent.path() / "quench-steps-of-somebody");
  std::filesystem::create_directories(parent.path() / "other");
  const auto first = ScratchFolder::Create(parent.path());
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(std::filesystem::exists(parent.path() / "quench-steps-killed"));
  EXPECT_TRUE(std::filesystem::exists(parent.path() / "quench-steps-of-somebody"));
  EXPECT_TRUE(std::filesystem::exists(parent.path() / "other"));
  const auto second = ScratchFolder::Create(parent.path());
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(std::filesystem::exists(first->path()));
  EXPECT_NE(first->path(), second->path());
}

TEST(ScratchFolderTest, MakesFoldersForStepsAlsoOnceSomethingHasRemovedIt) {
  const TempDir parent = *TempDir::Create();
  const auto scratch = ScratchFolder::Create(parent.path());
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  std::filesystem::remove_all(scratch->path());
  const auto step = scratch->Step();
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_TRUE(std::filesystem::is_directory(step->path()));
  const auto other = ScratchFolder::Create(parent.path());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(std::filesystem::is_directory(step->path())) << "another server took it";
}

// Each looks for what others have left, while these are about to lock theirs.
TEST(ScratchFolderTest, ServersThatStartTogetherTakeNothingFromEachOther) {
  const TempDir parent = *TempDir::Create();
  std::atomic<int> missing = 0, refused = 0;
  std::vector<std::thread> servers;
  for (int i = 0; i < 8; ++i) {
    servers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        const auto scratch = ScratchFolder::Create(parent.path());
        refused += scratch.ok() ? 0 : 1;
        missing += scratch.ok() && !std::filesystem::exists(scratch->path()) ? 1 : 0;
      }
    });
  }
  for (std::thread& server : servers) server.join();
  EXPECT_EQ(missing, 0);
  EXPECT_EQ(refused, 0);
}

}  // namespace
}  // namespace quench::steps::scratch_test
