#include "common/blobs/action_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/base/files.h"
#include "common/blobs/digest.h"

namespace quench::action_cache_test {
namespace {

class ActionCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Create();
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_.emplace(*std::move(folder));
  }
  std::shared_ptr<LocalActionCache> Open(uint64_t max_bytes) {
    return *LocalActionCache::Open(folder_->path(), max_bytes);
  }
  std::optional<TempDir> folder_;
  const StepContext step_;
};

TEST_F(ActionCacheTest, GivesWhatWasPutLast) {
  const auto cache = Open(1000);
  const std::string key = Sha256Hex("key");
  EXPECT_EQ(*cache->Get(key, step_), std::nullopt);
  ASSERT_EQ(cache->Put(key, "one", step_), absl::OkStatus());
  ASSERT_EQ(cache->Put(key, std::string("t\0wo", 4), step_), absl::OkStatus());
  EXPECT_EQ(*cache->Get(key, step_), std::string("t\0wo", 4));
  EXPECT_EQ(*Open(1000)->Get(key, step_), std::string("t\0wo", 4));
  EXPECT_TRUE(std::filesystem::exists(folder_->path() / "ac" / key.substr(0, 2) / key));
}

TEST_F(ActionCacheTest, BadKeysAndLargeValuesAreRefused) {
  const auto cache = Open(uint64_t{1} << 30);
  EXPECT_EQ(cache->Get("../x", step_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->Put("", "x", step_).code(), absl::StatusCode::kInvalidArgument);
  const std::string key = Sha256Hex("key");
  EXPECT_EQ(cache->Put(key, std::string(kMaxActionBytes + 1, 'x'), step_).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache->Put(key, std::string(kMaxActionBytes, 'x'), step_), absl::OkStatus());
}

TEST_F(ActionCacheTest, LeastRecentlyUsedEntriesGoFirst) {
  const auto cache = Open(100);
  std::vector<std::string> keys;
  for (int i = 0; i < 10; ++i) {
    keys.push_back(Sha256Hex(std::to_string(i)));
    ASSERT_EQ(cache->Put(keys.back(), "ten bytes.", step_), absl::OkStatus());
    timespec times[2];
    ::clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= 1000 - i;
    times[1] = times[0];
    const auto path = folder_->path() / "ac" / keys.back().substr(0, 2) / keys.back();
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  EXPECT_TRUE(cache->Get(keys[0], step_)->has_value());  // now the most recent
  ASSERT_EQ(cache->Put(Sha256Hex("more"), "ten bytes.", step_), absl::OkStatus());
  EXPECT_TRUE(cache->Get(keys[0], step_)->has_value());
  EXPECT_FALSE(cache->Get(keys[1], step_)->has_value());
  EXPECT_FALSE(cache->Get(keys[2], step_)->has_value());
  EXPECT_TRUE(cache->Get(keys[3], step_)->has_value());
}

}  // namespace
}  // namespace quench::action_cache_test
