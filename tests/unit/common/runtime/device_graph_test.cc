// Runs that repeat the launches of earlier ones.
#include <atomic>
#include <thread>

#include "tests/unit/common/runtime/device_model.h"
#include "tests/unit/common/runtime/device_support.h"

namespace quench::device_test {
namespace {

class DeviceGraphTest : public DeviceTest {
 protected:
  DeviceGraphTest() { device_line_runs = 0; }

  // Runs with x from `first` on, at a size, and looks at the results.
  void ExpectRun(size_t n, float first) {
    x_ = Counted(n, first);
    cache_ = Counted(n, -first);
    ASSERT_EQ(Set(0, x_), QUENCH_RT_OK) << error_.text;
    ASSERT_EQ(Set(1, cache_), QUENCH_RT_OK) << error_.text;
    ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(Output(0), LineOf(x_));
    EXPECT_EQ(Output(1), Sum(x_, cache_));
  }

  Floats x_, cache_;  // bound after a run, too
};

constexpr uint64_t kLaunches = 3;  // of one run

TEST_F(DeviceGraphTest, TheThirdRunIsOneCall) {
  Begin(device_line_query);
  const uint64_t before = Launches();
  for (int run = 1; run <= 5; ++run) {
    ExpectRun(10, static_cast<float>(run));
    EXPECT_EQ(device_line_runs, run < 3 ? run : 2);
    EXPECT_EQ(Launches() - before, kLaunches * static_cast<uint64_t>(run));
  }
  Free();
  EXPECT_EQ(LiveBytes(), 0u);
}

TEST_F(DeviceGraphTest, EverySizeHasItsOwn) {
  Begin(device_line_query);
  ExpectRun(90, 1);  // memory grows no more
  ExpectRun(10, 1);
  ExpectRun(20, 1);
  device_line_runs = 0;
  for (int run = 0; run < 3; ++run) {
    ExpectRun(10, 3);
    ExpectRun(20, 4);
  }
  EXPECT_EQ(device_line_runs, 2);
}

TEST_F(DeviceGraphTest, PlansThatAreForgottenTakeTheirsAlong) {
  Begin(device_line_query);
  for (const size_t n : {90, 10, 20, 30, 40, 50, 60, 10, 10, 10, 20, 20, 20}) ExpectRun(n, 2);
}

TEST_F(DeviceGraphTest, OtherMemoryEndsIt) {
  Begin(device_line_query);
  for (int run = 0; run < 3; ++run) ExpectRun(4, 1);
  EXPECT_EQ(device_line_runs, 2);
  const Context context;
  const Floats x = {5, 6, 7, 8};
  const DeviceFloats other(context, x), y(context, 4);
  ASSERT_EQ(SetDevice(0, other.data(), 4), QUENCH_RT_OK) << error_.text;
  for (int run = 0; run < 3; ++run) {
    ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(Output(0), LineOf(x));
  }
  EXPECT_EQ(device_line_runs, 4);
  ASSERT_EQ(quench_rt_set_device_output(session_, 0, y.data(), 16, &error_), QUENCH_RT_OK);
  for (int run = 0; run < 3; ++run) ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(y.Read(), LineOf(x));
  EXPECT_EQ(device_line_runs, 6);
  // Larger sizes move the session's memory.
  ASSERT_EQ(quench_rt_set_device_output(session_, 0, nullptr, 0, &error_), QUENCH_RT_OK);
  ExpectRun(80, 1);
  ExpectRun(4, 1);
  ExpectRun(4, 2);
}

TEST_F(DeviceGraphTest, ChecksFailAsWithout) {
  Begin(device_line_query);
  for (int run = 0; run < 3; ++run) ExpectRun(4, 1);
  const Floats bad = {1, 2, -3, 4}, good = {1, 2, 3, 4};
  ASSERT_EQ(Set(0, bad), QUENCH_RT_OK);
  EXPECT_EQ(Run(), QUENCH_RT_CHECK);
  EXPECT_STREQ(error_.text, "node `scale` (Mul): x is negative");
  ExpectRun(4, 1);
  EXPECT_EQ(device_line_runs, 2);
}

TEST_F(DeviceGraphTest, ProfilesRunWithout) {
  Begin(device_line_query);
  for (int run = 0; run < 3; ++run) ExpectRun(4, 1);
  std::vector<double> seconds(3);
  ASSERT_EQ(quench_rt_profile(session_, seconds.data(), &error_), QUENCH_RT_OK) << error_.text;
  EXPECT_GT(seconds[2], 0);
  EXPECT_EQ(device_line_runs, 3);
  ExpectRun(4, 1);
  EXPECT_EQ(device_line_runs, 3);
}

TEST_F(DeviceGraphTest, CopiesToTheHostRunWithout) {
  Begin(device_line_query);
  device_line_does = DEVICE_LINE_TRANSFERS;
  for (int run = 1; run <= 4; ++run) {
    ExpectRun(4, 1);
    EXPECT_EQ(device_line_runs, run);
  }
}

// A run function that does not keep its word is found out, and called again.
TEST_F(DeviceGraphTest, CopiesThatComeLateEndIt) {
  Begin(device_line_query);
  ExpectRun(4, 1);
  device_line_does = DEVICE_LINE_TRANSFERS;
  ExpectRun(4, 2);
  EXPECT_EQ(device_line_runs, 3);
  device_line_does = DEVICE_LINE_NOTHING;
  for (int run = 4; run <= 7; ++run) {
    ExpectRun(4, 3);
    EXPECT_EQ(device_line_runs, run);
  }
}

TEST_F(DeviceGraphTest, RunsAreCancelledWhileTheyAreRecorded) {
  Begin(device_line_query);
  ExpectRun(4, 1);
  device_line_does = DEVICE_LINE_WAITS;
  std::atomic<bool> over = false;
  std::thread canceller([&] {
    while (!over) {
      quench_rt_cancel(session_);
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(Run(), QUENCH_RT_CANCELLED);
  over = true;
  canceller.join();
  device_line_does = DEVICE_LINE_NOTHING;
  for (int run = 0; run < 3; ++run) ExpectRun(4, 2);
  EXPECT_EQ(device_line_runs, 3);
}

TEST_F(DeviceGraphTest, StreamsOfTheCallersHaveNone) {
  ASSERT_EQ(Open(device_line_query), QUENCH_RT_OK) << error_.text;
  const Context context;
  CUstream stream = nullptr;
  ASSERT_EQ(context.cuda().StreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(Start("cuda", stream), QUENCH_RT_OK) << error_.text;
  for (int run = 0; run < 4; ++run) ExpectRun(4, 1);
  EXPECT_EQ(device_line_runs, 4);
  Free();
  EXPECT_EQ(context.cuda().StreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(DeviceGraphTest, StatesGoAlong) {
  Begin(device_sum_query);
  const Floats x = {1, 2, 3, 4};
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  for (float times = 1; times < 6; ++times) {
    ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(Output(0), (Floats{times, 2 * times, 3 * times, 4 * times}));
  }
}

}  // namespace
}  // namespace quench::device_test
