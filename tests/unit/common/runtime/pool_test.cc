#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

extern "C" {
#include "common/runtime/rt_internal.h"
}

namespace {

struct Counter {
  std::vector<std::atomic<int>> done;
  std::atomic<uint32_t> most_workers{0};
  int64_t grain = 1;
  std::atomic<bool> too_small{false};
  explicit Counter(size_t count) : done(count) {}
};

int32_t Count(void* arg, int64_t begin, int64_t end, uint32_t worker) {
  auto& counter = *static_cast<Counter*>(arg);
  if (end - begin < counter.grain && end != static_cast<int64_t>(counter.done.size()))
    counter.too_small = true;
  for (int64_t i = begin; i < end; ++i) ++counter.done[static_cast<size_t>(i)];
  uint32_t seen = counter.most_workers;
  while (seen < worker && !counter.most_workers.compare_exchange_weak(seen, worker)) {
  }
  return 0;
}

TEST(PoolTest, EveryTaskRunsOnce) {
  quench_rt_pool* pool = quench_rt_pool_create(4);
  ASSERT_NE(pool, nullptr);
  for (const int64_t count : {0, 1, 3, 17, 1000}) {
    for (const int64_t grain : {1, 8, 5000}) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        Counter counter(static_cast<size_t>(count));
        counter.grain = grain;
        EXPECT_EQ(quench_rt_pool_run(pool, Count, &counter, count, grain), 0);
        for (const std::atomic<int>& done : counter.done) EXPECT_EQ(done, 1);
        EXPECT_LT(counter.most_workers, 4u);
        EXPECT_FALSE(counter.too_small);
      }
    }
  }
  quench_rt_pool_free(pool);
}

struct Ranges {
  std::mutex mutex;
  std::vector<int64_t> begins;
};

// The caller's part; another thread takes one range and stays in it until the caller has begun one of that
// thread's.
int32_t NoteCallersRanges(void* arg, int64_t begin, int64_t, uint32_t worker) {
  auto& ranges = *static_cast<Ranges*>(arg);
  constexpr int64_t kHalf = 40;
  if (worker == 0) {
    const std::lock_guard lock(ranges.mutex);
    ranges.begins.push_back(begin);
    return 0;
  }
  while (true) {
    const std::lock_guard lock(ranges.mutex);
    if (!ranges.begins.empty() && ranges.begins.back() >= kHalf) return 0;
  }
}

// The data that a thread has prefetched at the end of a range are those it needs next.
TEST(PoolTest, AThreadTakesRangesOfItsOwnInOrderThenOthers) {
  quench_rt_pool* pool = quench_rt_pool_create(2);
  ASSERT_NE(pool, nullptr);
  for (int repeat = 0; repeat < 50; ++repeat) {
    Ranges ranges;
    ASSERT_EQ(quench_rt_pool_run(pool, NoteCallersRanges, &ranges, 80, 1), 0);
    ASSERT_GE(ranges.begins.size(), 5u);
    EXPECT_EQ(std::vector<int64_t>(ranges.begins.begin(), ranges.begins.begin() + 4),
              (std::vector<int64_t>{0, 10, 20, 30}));
    EXPECT_TRUE(std::is_sorted(ranges.begins.begin(), ranges.begins.end()));
  }
  quench_rt_pool_free(pool);
}

TEST(PoolTest, SoManyThreadsTakePartAsAreAskedFor) {
  quench_rt_pool* pool = quench_rt_pool_create(4);
  ASSERT_NE(pool, nullptr);
  for (const uint32_t threads : {1u, 4u, 2u, 3u}) {
    ASSERT_EQ(quench_rt_pool_use(pool, threads), 1);
    for (int repeat = 0; repeat < 200; ++repeat) {
      Counter counter(100);
      counter.grain = 1;
      EXPECT_EQ(quench_rt_pool_run(pool, Count, &counter, 100, 1), 0);
      for (const std::atomic<int>& done : counter.done) EXPECT_EQ(done, 1);
      EXPECT_LT(counter.most_workers, threads);
    }
  }
  EXPECT_EQ(quench_rt_pool_use(pool, 5), 0);
  quench_rt_pool_free(pool);
}

int32_t FailAt7(void*, int64_t begin, int64_t end, uint32_t) {
  return begin <= 7 && 7 < end ? 42 : 0;
}

TEST(PoolTest, FirstFailureIsTheResult) {
  quench_rt_pool* pool = quench_rt_pool_create(3);
  ASSERT_NE(pool, nullptr);
  for (int repeat = 0; repeat < 50; ++repeat)
    EXPECT_EQ(quench_rt_pool_run(pool, FailAt7, nullptr, 100, 1), 42);
  quench_rt_pool_free(pool);
}

TEST(PoolTest, StopsWithoutAJob) {
  for (int i = 0; i < 20; ++i) {
    quench_rt_pool* pool = quench_rt_pool_create(3);
    ASSERT_NE(pool, nullptr);
    quench_rt_pool_free(pool);
  }
}

}  // namespace
