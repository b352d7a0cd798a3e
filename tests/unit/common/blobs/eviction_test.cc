#include "common/blobs/eviction.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/blobs/digest.h"

namespace quench::eviction_test {
namespace {

class EvictionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Create();
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_.emplace(*std::move(folder));
    store_ = *LocalBlobStore::Open(folder_->path() / "a", nullptr);
    other_ = *LocalBlobStore::Open(folder_->path() / "b", nullptr);
  }
  // A blob of 10 bytes that was last used so many seconds ago.
  static std::string Put(LocalBlobStore& store, char fill, int age) {
    const std::string text(10, fill);
    const auto digest = store.Put(std::as_bytes(std::span(text.data(), text.size())));
    EXPECT_TRUE(digest.ok()) << digest.status();
    timespec times[2];
    ::clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= age;
    times[1] = times[0];
    const auto path = store.blobs() / digest->substr(0, 2) / *digest;
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return *digest;
  }

  std::optional<TempDir> folder_;
  std::shared_ptr<LocalBlobStore> store_, other_;
};

TEST_F(EvictionTest, FromAboveHighDownToLowOldestFirst) {
  const std::string a = Put(*store_, 'a', 4000), b = Put(*store_, 'b', 3000),
                    c = Put(*store_, 'c', 2000), d = Put(*store_, 'd', 1000);
  EXPECT_EQ(Evict({{store_.get(), {}}}, {20, 40, 100})->removed.count, 0u);
  const auto eviction = Evict({{store_.get(), {}}}, {20, 39, 100});
  ASSERT_TRUE(eviction.ok()) << eviction.status();
  EXPECT_EQ(eviction->removed.bytes, 20u);
  EXPECT_EQ(eviction->left.bytes, 20u);
  EXPECT_EQ(eviction->left.count, 2u);
  EXPECT_FALSE(store_->Contains(a) || store_->Contains(b));
  EXPECT_TRUE(store_->Contains(c) && store_->Contains(d));
}

TEST_F(EvictionTest, PinnedBlobsStayWhateverTheLimits) {
  const std::string pinned = Put(*store_, 'a', 4000), free = Put(*store_, 'b', 3000);
  const auto is_pinned = [&](const std::string& hash) { return hash == pinned; };
  EXPECT_EQ(Evict({{store_.get(), is_pinned}}, {0, 0, 0})->removed.count, 1u);
  EXPECT_TRUE(store_->Contains(pinned));
  EXPECT_FALSE(store_->Contains(free));
}

TEST_F(EvictionTest, RecentBlobsStayUnlessAboveMax) {
  const std::string a = Put(*store_, 'a', 100), b = Put(*store_, 'b', 50);
  EXPECT_EQ(Evict({{store_.get(), {}}}, {0, 10, 20})->removed.count, 0u);
  EXPECT_EQ(Evict({{store_.get(), {}}}, {0, 10, 19})->removed.count, 1u);
  EXPECT_FALSE(store_->Contains(a));
  EXPECT_TRUE(store_->Contains(b));
}

TEST_F(EvictionTest, StoresAreWeighedTogether) {
  const std::string old = Put(*other_, 'a', 4000), young = Put(*store_, 'b', 3000);
  EXPECT_EQ(Evict({{store_.get(), {}}, {other_.get(), {}}}, {10, 15, 100})->removed.count, 1u);
  EXPECT_FALSE(other_->Contains(old));
  EXPECT_TRUE(store_->Contains(young));
}

TEST_F(EvictionTest, TheEmptyBlobStays) {
  const auto empty = store_->Put({});
  Put(*store_, 'a', 4000);
  EXPECT_EQ(Evict({{store_.get(), {}}}, {0, 0, 0, std::chrono::seconds(0)})->removed.count, 1u);
  EXPECT_TRUE(store_->Contains(*empty));
}

TEST_F(EvictionTest, AUseCountsAndFreesNothing) {
  const std::string a = Put(*store_, 'a', 4000), b = Put(*store_, 'b', 3000);
  EXPECT_TRUE(store_->Use({a, 10}));
  EXPECT_FALSE(store_->Use({b, 11}));
  Evict({{store_.get(), {}}}, {10, 10, 20}).IgnoreError();
  EXPECT_TRUE(store_->Contains(a));
  EXPECT_FALSE(store_->Contains(b));
}

// Bytes that another process adds to the folder count: for eviction, and for writes that are
// refused.
TEST_F(EvictionTest, AFolderSharedByTwoProcesses) {
  const auto space = std::make_shared<BlobSpace>(1000);
  const auto limited = *LocalBlobStore::Open(folder_->path() / "a", space);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int failed = 0;
    for (int i = 0; i < 90; ++i) {
      const std::string text = "ten bytes" + std::string(1, static_cast<char>(i));
      failed += store_->Put(std::as_bytes(std::span(text.data(), text.size()))).ok() ? 0 : 1;
    }
    ::_exit(failed);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  EXPECT_EQ(space->Measure(), 900u);
  const std::string text(101, 'x');
  const auto refused = limited->Put(std::as_bytes(std::span(text.data(), text.size())));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(limited->Put(std::as_bytes(std::span(text.data(), 100))).ok());
  const auto eviction = Evict({{limited.get(), {}}}, {500, 900, 950, std::chrono::seconds(0)});
  ASSERT_TRUE(eviction.ok()) << eviction.status();
  EXPECT_LE(eviction->left.bytes, 500u);
  EXPECT_TRUE(limited->Put(std::as_bytes(std::span(text.data(), text.size()))).ok());
}

}  // namespace
}  // namespace quench::eviction_test
