// Kernels on the emulated device: what good ones compute, and what it says of accesses to wrong
// places.
#include <numeric>

#include "tests/unit/common/runtime/emulated_harness.h"

namespace quench::emulated_device_test {
namespace {

using Thread = quench_emulated_thread;

void Saxpy(Thread* thread, void* const* arguments) {
  const auto count = Argument<uint32_t>(arguments, 0);
  const auto factor = Argument<float>(arguments, 1);
  const auto* const x = Argument<const float*>(arguments, 2);
  auto* const y = Argument<float*>(arguments, 3);
  const uint32_t i = thread->block * thread->threads + thread->thread;
  if (i < count) Store(thread, y + i, factor * Load(thread, x + i) + Load(thread, y + i));
}

TEST_F(EmulatedDevice, ThreadsOfAllBlocksRun) {
  constexpr uint32_t kCount = 1000;
  std::vector<float> x(kCount), y(kCount, 1.0f), expected(kCount);
  std::iota(x.begin(), x.end(), 0.0f);
  for (uint32_t i = 0; i < kCount; ++i) expected[i] = 2.5f * x[i] + 1.0f;
  for (const bool cooperates : {false, true}) {
    const float* const device_x = Upload(x);
    float* const device_y = Upload(y);
    const Shape shape = {4, 256, 0, cooperates};
    ASSERT_EQ(Run(shape, Saxpy, kCount, 2.5f, device_x, device_y), CUDA_SUCCESS) << report();
    EXPECT_EQ(Download(device_y, kCount), expected);
  }
}

// Sums 256 numbers of each block: in warps by shuffles, then over warps in shared memory.
void SumBlocks(Thread* thread, void* const* arguments) {
  const auto* const from = Argument<const uint32_t*>(arguments, 0);
  auto* const to = Argument<uint32_t*>(arguments, 1);
  const auto* const ops = thread->ops;
  uint32_t sum = Load(thread, from + thread->block * thread->threads + thread->thread);
  for (uint32_t mask = 16; mask > 0; mask /= 2) sum += ops->shuffle_xor(thread, sum, mask);
  const uint32_t warp = thread->thread / 32, lane = thread->thread % 32;
  if (lane == 0) Store(thread, Shared(thread) + warp, sum);
  ops->barrier(thread);
  if (warp != 0) return;
  sum = lane < thread->threads / 32 ? Load(thread, Shared(thread) + lane) : 0;
  for (uint32_t mask = 16; mask > 0; mask /= 2) sum += ops->shuffle_xor(thread, sum, mask);
  if (ops->shuffle(thread, lane, 7) != 7) sum = 0;
  if (lane == 0) Store(thread, to + thread->block, sum);
}

TEST_F(EmulatedDevice, ThreadsOfABlockWorkTogetherInEitherOrder) {
  constexpr uint32_t kBlocks = 3, kThreads = 256;
  std::vector<uint32_t> values(kBlocks * kThreads), expected(kBlocks);
  for (uint32_t i = 0; i < values.size(); ++i) {
    values[i] = i * i + 7;
    expected[i / kThreads] += values[i];
  }
  for (const char* const order : {"forward", "reverse"}) {
    BeginWith("QUENCH_EMULATED_ORDER", order);
    const uint64_t before = launches();
    auto* const sums = Allocate<uint32_t>(kBlocks);
    const Shape shape = {kBlocks, kThreads, 32};
    ASSERT_EQ(Run(shape, SumBlocks, Upload(values), sums), CUDA_SUCCESS) << report();
    EXPECT_EQ(Download(sums, kBlocks), expected) << order;
    EXPECT_EQ(launches() - before, 1u);
  }
}

// The first thread to run leaves its number.
TEST_F(EmulatedDevice, ReverseIsFromTheLastToTheFirst) {
  const auto kernel = [](Thread* thread, void* const* arguments) {
    auto* const first = Argument<uint32_t*>(arguments, 0);
    const uint32_t me = thread->block * thread->threads + thread->thread;
    if (Load(thread, first) == kUnwritten) Store(thread, first, me);
  };
  for (const bool cooperates : {false, true}) {
    for (const bool reverse : {false, true}) {
      BeginWith("QUENCH_EMULATED_ORDER", reverse ? "reverse" : "");
      auto* const first = Allocate<uint32_t>(1);
      EXPECT_EQ(Run({2, 3, 0, cooperates}, kernel, first), CUDA_SUCCESS);
      EXPECT_EQ(Download(first, 1)[0], reverse ? 5u : 0u);
    }
  }
}

TEST_F(EmulatedDevice, AtomicMin) {
  const auto kernel = [](Thread* thread, void* const* arguments) {
    auto* const out = Argument<uint32_t*>(arguments, 0);
    thread->ops->atomic_min(thread, out, 100 - thread->thread);
    thread->ops->atomic_min(thread, Shared(thread), 50 + thread->thread);
    thread->ops->barrier(thread);
    if (thread->thread == 0) Store(thread, out + 1, Load(thread, Shared(thread)));
  };
  auto* const out = Allocate<uint32_t>(2);
  ASSERT_EQ(Run({1, 64, 4}, kernel, out), CUDA_SUCCESS) << report();
  EXPECT_EQ(Download(out, 2), (std::vector<uint32_t>{37, 50}));
}

void StoreAt(Thread* thread, void* const* arguments) {
  if (thread->thread == 1) Store(thread, Argument<uint32_t*>(arguments, 0), 7u);
}
void LoadAt(Thread* thread, void* const* arguments) {
  if (thread->thread == 1) Load(thread, Argument<const uint32_t*>(arguments, 0));
}

TEST_F(EmulatedDevice, AWriteOutsideFailsUntilTheContextIsReleased) {
  for (const bool cooperates : {false, true}) {
    auto* const data = Allocate<uint32_t>(256);
    EXPECT_EQ(Run({1, 2, 0, cooperates}, StoreAt, data + 255), CUDA_SUCCESS);
    EXPECT_EQ(report(), "");
    EXPECT_EQ(Run({1, 2, 0, cooperates}, StoreAt, data + 260), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(report(),
              "kernel `test`, block 0, thread 1: writes 4 bytes at 16 bytes past the end of an "
              "allocation of 1024 bytes");
    EXPECT_EQ(cuda.StreamSynchronize(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr address;
    EXPECT_EQ(cuda.MemAlloc(&address, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuda.MemFree(Address(data)), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(live_bytes(), 0u);  // yet it is free
    End();
    Begin();
    EXPECT_EQ(Run({1, 2, 0, cooperates}, StoreAt, Allocate<uint32_t>(1)), CUDA_SUCCESS);
    EXPECT_EQ(report(), "");
    End();
    Begin();
  }
}

TEST_F(EmulatedDevice, ReadsOutsideAreDescribed) {
  static const uint32_t constant = 3;
  static uint32_t variable = 4;
  const std::vector<uint32_t> heap(100);
  struct {
    const void* address;
    const char* text;  // "" if all is well
  } cases[] = {
      {nullptr, "at address 0"},
      {heap.data(), "in memory of the host"},
      {&variable, "in memory of the host"},
      {&constant, ""},
  };
  for (const auto& [address, text] : cases) {
    const CUresult result = Run({1, 2}, LoadAt, address);
    if (*text == '\0') {
      EXPECT_EQ(result, CUDA_SUCCESS) << report();
      EXPECT_EQ(Run({1, 2}, StoreAt, address), CUDA_ERROR_ILLEGAL_ADDRESS);
      EXPECT_EQ(report(),
                "kernel `test`, block 0, thread 1: writes 4 bytes in memory that can only be read");
    } else {
      EXPECT_EQ(result, CUDA_ERROR_ILLEGAL_ADDRESS);
      EXPECT_EQ(report(), std::string("kernel `test`, block 0, thread 1: reads 4 bytes ") + text);
    }
    End();
    Begin();
  }
}

TEST_F(EmulatedDevice, ReadsAroundAllocationsAreDescribed) {
  const std::string reads = "kernel `test`, block 0, thread 1: reads 4 bytes ";
  const auto expect = [&](const char* address, const std::string& text) {
    EXPECT_EQ(Run({1, 2}, LoadAt, address), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(report(), reads + text);
    End();
    Begin();
  };
  expect(Allocate<char>(1024) - 8, "at 8 bytes before the begin of an allocation of 1024 bytes");
  expect(Allocate<char>(30) + 28, "at 2 bytes before the end of an allocation of 30 bytes");
  expect(Allocate<char>(30) + (1 << 20),
         "at 1048546 bytes past the end of an allocation of 30 bytes");
  const char* const freed = Allocate<char>(64);
  ASSERT_EQ(cuda.MemFree(Address(freed)), CUDA_SUCCESS);
  expect(freed + 12, "at byte 12 of an allocation of 64 bytes that has been freed");
}

TEST_F(EmulatedDevice, MemoryThatWasNotWrittenIsPoison) {
  const auto kernel = [](Thread* thread, void* const* arguments) {
    auto* const out = Argument<uint32_t*>(arguments, 0);
    Store(thread, out + thread->block, Load(thread, Shared(thread)));
    Store(thread, Shared(thread), 0u);
  };
  auto* const out = Allocate<uint32_t>(3);
  ASSERT_EQ(Run({2, 1, 4}, kernel, out), CUDA_SUCCESS) << report();
  EXPECT_EQ(Download(out, 3), std::vector<uint32_t>(3, kUnwritten));
}

TEST_F(EmulatedDevice, SharedMemoryHasAnEnd) {
  const auto kernel = [](Thread* thread, void* const*) { Store(thread, Shared(thread) + 9, 1u); };
  EXPECT_EQ(Run({1, 1, 40}, kernel), CUDA_SUCCESS) << report();
  EXPECT_EQ(Run({1, 1, 36}, kernel), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(report(),
            "kernel `test`, block 0, thread 0: writes 4 bytes at 0 bytes past the end of 36 bytes "
            "of shared memory");
}

TEST_F(EmulatedDevice, StacksAreTheThreadsOwn) {
  const auto kernel = [](Thread* thread, void* const* arguments) {
    uint32_t mine = thread->thread;
    auto** const at = static_cast<uint32_t**>(thread->shared);
    Store(thread, &mine, Load(thread, &mine) + 1);
    if (thread->thread == 0) Store(thread, at, &mine);
    thread->ops->barrier(thread);
    const bool other = Argument<uint32_t>(arguments, 0) == thread->thread;
    if (other) Store(thread, Load(thread, at), 5u);
    thread->ops->barrier(thread);
  };
  EXPECT_EQ(Run({1, 2, 8}, kernel, 0u), CUDA_SUCCESS) << report();
  EXPECT_EQ(Run({1, 2, 8}, kernel, 1u), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(report(), "kernel `test`, block 0, thread 1: writes 4 bytes in the stack of thread 0");
}

}  // namespace
}  // namespace quench::emulated_device_test
