// Reports of the emulated device about threads that do not wait for each other, or for what never
// comes.
#include "tests/unit/common/runtime/emulated_harness.h"

namespace quench::emulated_races_test {
namespace {

using Thread = quench_emulated_thread;

class EmulatedRaces : public EmulatedDevice {};

// Thread 0 writes a byte of shared memory, or reads it; then thread 1 does, behind a barrier or
// not.
void AccessAfter(Thread* thread, void* const* arguments) {
  auto* const byte = static_cast<uint8_t*>(thread->shared) + 3;
  if (thread->thread == 1 && Argument<uint32_t>(arguments, 2) != 0) thread->ops->barrier(thread);
  const bool write = Argument<uint32_t>(arguments, static_cast<int>(thread->thread)) != 0;
  if (write) Store(thread, byte, uint8_t{1});
  if (!write) Load(thread, byte);
  if (thread->thread == 0 && Argument<uint32_t>(arguments, 2) != 0) thread->ops->barrier(thread);
}

TEST_F(EmulatedRaces, RacesInSharedMemory) {
  for (const uint32_t first : {0u, 1u}) {
    for (const uint32_t second : {0u, 1u}) {
      EXPECT_EQ(Run({1, 2, 4}, AccessAfter, first, second, 1u), CUDA_SUCCESS) << report();
      const bool race = first + second > 0;
      EXPECT_EQ(Run({1, 2, 4}, AccessAfter, first, second, 0u),
                race ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
      const std::string text = std::string("kernel `test`, block 0, thread 1: ") +
                               (second != 0 ? "writes" : "reads") +
                               " byte 3 of shared memory, which thread 0 has " +
                               (first != 0 ? "written" : "read") + " since the last barrier";
      EXPECT_EQ(report(), race ? text : "");
      End();
      Begin();
    }
  }
}

TEST_F(EmulatedRaces, RacesWithOneOfSeveralReaders) {
  const auto kernel = [](Thread* thread, void* const*) {
    Load(thread, Shared(thread));
    thread->ops->shuffle(thread, 0, 0);
    if (thread->thread == 0) Store(thread, Shared(thread), 1u);
  };
  EXPECT_EQ(Run({1, 32, 4}, kernel), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(report(),
            "kernel `test`, block 0, thread 0: writes byte 0 of shared memory, which thread 31 has "
            "read since the last barrier");
}

// Lane l writes row l and gives row l ^ argument.
TEST_F(EmulatedRaces, RowsOfMatricesAreReadByTheLaneThatGivesThem) {
  const auto kernel = [](Thread* thread, void* const* arguments) {
    auto* const rows = Shared(thread);
    const uint32_t row = Argument<uint32_t>(arguments, 0) ^ thread->thread;
    Store(thread, rows + 4 * thread->thread, thread->thread);
    uint32_t words[4];
    thread->ops->load_matrices(thread, rows + 4 * row, 0, words);
  };
  EXPECT_EQ(Run({1, 32, 512}, kernel, 0u), CUDA_SUCCESS) << report();
  EXPECT_EQ(Run({1, 32, 512}, kernel, 1u), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(report(),
            "kernel `test`, block 0, thread 0: reads byte 16 of shared memory, which thread 1 has "
            "written since the last barrier");
}

TEST_F(EmulatedRaces, RacesInGlobalMemory) {
  // Threads 0 and 1 of each block write a number each; `apart`: behind a barrier.
  const auto kernel = [](Thread* thread, void* const* arguments) {
    auto* const to = Argument<uint32_t*>(arguments, 0);
    if (thread->thread == 0) Store(thread, to, Argument<uint32_t>(arguments, 1));
    if (Argument<uint32_t>(arguments, 3) != 0) thread->ops->barrier(thread);
    if (thread->thread == 1) Store(thread, to, Argument<uint32_t>(arguments, 2));
  };
  EXPECT_EQ(Run({1, 2}, kernel, Allocate<uint32_t>(1), 1u, 2u, 0u), CUDA_SUCCESS);
  BeginWith("QUENCH_EMULATED_RACES", "1");
  EXPECT_EQ(Run({1, 2}, kernel, Allocate<uint32_t>(1), 1u, 1u, 0u), CUDA_SUCCESS);
  EXPECT_EQ(Run({1, 2}, kernel, Allocate<uint32_t>(1), 1u, 2u, 1u), CUDA_SUCCESS) << report();
  EXPECT_EQ(Run({2, 2}, kernel, Allocate<uint32_t>(1), 1u, 2u, 1u), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(report(),
            "kernel `test`, block 1, thread 0: writes byte 0 of an allocation of 4 bytes, to which "
            "thread 1 of block 0 has written another value, with no barrier between");
  End();
  Begin();
  EXPECT_EQ(Run({1, 2, 0, false}, kernel, Allocate<uint32_t>(1), 1u, 2u, 0u),
            CUDA_ERROR_LAUNCH_FAILED);
}

// Thread 1 reads what thread 0 has copied; bits 0 and 1 of the first argument: wait and barrier are
// there.
void CopyAndRead(Thread* thread, void* const* arguments) {
  const auto what = Argument<uint32_t>(arguments, 0);
  const auto* const ops = thread->ops;
  if (thread->thread == 0) {
    for (uint32_t i = 0; i < 4; ++i) Store(thread, Shared(thread) + i, 9u);
    ops->copy_async(thread, thread->shared, Argument<const uint32_t*>(arguments, 1), 8);
    ops->commit(thread);
    ops->wait(thread, (what & 1) != 0 ? 0 : 1);
  }
  if ((what & 2) != 0) ops->barrier(thread);
  if (thread->thread != 1) return;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t value = Load(thread, Shared(thread) + i);
    Store(thread, Argument<uint32_t*>(arguments, 2) + i, value);
  }
}

TEST_F(EmulatedRaces, CopiesAreThereAfterTheirWait) {
  const auto* const from = Upload<uint32_t>({1, 2, 3, 4});
  auto* const to = Allocate<uint32_t>(4);
  EXPECT_EQ(Run({1, 2, 16}, CopyAndRead, 3u, from, to), CUDA_SUCCESS) << report();
  EXPECT_EQ(Download(to, 4), (std::vector<uint32_t>{1, 2, 0, 0}));
  EXPECT_EQ(Run({1, 2, 16}, CopyAndRead, 2u, from, to), CUDA_SUCCESS) << report();
  EXPECT_EQ(Download(to, 4), std::vector<uint32_t>(4, kUnwritten));
  EXPECT_EQ(Run({1, 2, 16}, CopyAndRead, 1u, from, to), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(report(),
            "kernel `test`, block 0, thread 1: reads byte 0 of shared memory, which thread 0 has "
            "written since the last barrier");
}

// Thread 1 copies to where thread 0 has written; with a barrier between them it does not wait in
// time.
TEST_F(EmulatedRaces, CopiesAreWritesUntilTheirWait) {
  const auto kernel = [](Thread* thread, void* const* arguments) {
    const bool barriers = Argument<uint32_t>(arguments, 1) != 0;
    if (thread->thread == 0) Store(thread, Shared(thread), 1u);
    if (barriers) thread->ops->barrier(thread);
    if (thread->thread == 1) {
      thread->ops->copy_async(thread, thread->shared, Argument<const uint32_t*>(arguments, 0), 16);
      thread->ops->commit(thread);
    }
    if (barriers) thread->ops->barrier(thread);
    if (barriers && thread->thread == 0) Load(thread, Shared(thread));
    if (thread->thread == 1) thread->ops->wait(thread, Argument<uint32_t>(arguments, 2));
  };
  const auto* const from = Upload<uint32_t>({1, 2, 3, 4});
  const std::string race =
      "kernel `test`, block 0, thread 1: writes byte 0 of shared memory, which thread 0 has ";
  EXPECT_EQ(Run({1, 2, 16}, kernel, from, 1u, 1u), CUDA_SUCCESS) << report();
  EXPECT_EQ(Run({1, 2, 16}, kernel, from, 1u, 0u), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(report(), race + "read since the last barrier");
  End();
  Begin();
  EXPECT_EQ(Run({1, 2, 16}, kernel, Upload<uint32_t>({1, 2, 3, 4}), 0u, 1u),
            CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(report(), race + "written since the last barrier");
}

TEST_F(EmulatedRaces, CopiesWithinBounds) {
  const auto kernel = [](Thread* thread, void* const* arguments) {
    auto* const to = static_cast<char*>(thread->shared) + Argument<uint32_t>(arguments, 1);
    thread->ops->copy_async(thread, to, Argument<const char*>(arguments, 0), 16);
  };
  const std::string copies = "kernel `test`, block 0, thread 0: copy_async ";
  const std::vector<std::tuple<uint32_t, uint32_t, std::string>> cases = {
      {0, 32,
       copies + "to 16 bytes outside shared memory: at 0 bytes past the end of 32 bytes of shared "
                "memory"},
      {0, 8, copies + "with an address that is not aligned to 16 bytes"},
      {4, 0, copies + "with an address that is not aligned to 16 bytes"},
      {16, 0,
       "kernel `test`, block 0, thread 0: reads 16 bytes at 8 bytes before the end of an "
       "allocation of 24 bytes"}};
  for (const auto& [from, to, text] : cases) {
    const char* const data = Allocate<char>(24);
    EXPECT_EQ(Run({1, 1, 32}, kernel, data, 0u), CUDA_SUCCESS) << report();
    EXPECT_EQ(Run({1, 1, 32}, kernel, data + from, to), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(report(), text);
    End();
    Begin();
  }
}

// Copies parts of 1, 2, 4 and 8 bytes behind one another, those of the second argument's bits, and
// reads them before and after a wait.
void CopyParts(Thread* thread, void* const* arguments) {
  const auto* const ops = thread->ops;
  auto* const to = static_cast<unsigned char*>(thread->shared);
  const auto* const from = Argument<const unsigned char*>(arguments, 0);
  const auto present = Argument<uint32_t>(arguments, 1);
  auto* const out = Argument<uint64_t*>(arguments, 2);
  const auto read = [&](uint32_t at) {
    for (uint32_t bytes = 1; bytes <= 8; bytes *= 2) {
      uint64_t value = 0;
      ops->access(thread, to + bytes, bytes, 0);
      std::memcpy(&value, to + bytes, bytes);
      Store(thread, out + at++, value);
    }
  };
  for (uint32_t bytes = 1; bytes <= 8; bytes *= 2)
    ops->copy_part(thread, to + bytes, from + bytes, bytes, present & bytes);
  ops->commit(thread);
  read(0);
  ops->wait(thread, 0);
  read(4);
}

TEST_F(EmulatedRaces, PartsOfCopies) {
  std::vector<unsigned char> bytes(16);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
  const auto* const from = Upload(bytes);
  auto* const to = Allocate<uint64_t>(8);
  EXPECT_EQ(Run({1, 1, 16}, CopyParts, from, 15u, to), CUDA_SUCCESS) << report();
  EXPECT_EQ(Download(to, 8), (std::vector<uint64_t>{1, 0x0302, 0xA5A5A5A5, 0xA5A5A5A5A5A5A5A5, 1,
                                                    0x0302, 0x07060504, 0x0F0E0D0C0B0A0908}));
  EXPECT_EQ(Run({1, 1, 16}, CopyParts, from, 4u, to), CUDA_SUCCESS) << report();
  EXPECT_EQ(Download(to, 8),
            (std::vector<uint64_t>{0, 0, 0xA5A5A5A5, 0xA5A5A5A5A5A5A5A5, 0, 0, 0x07060504, 0}));
}

TEST_F(EmulatedRaces, PartsOfCopiesWithinBounds) {
  const auto kernel = [](Thread* thread, void* const* arguments) {
    auto* const to = static_cast<char*>(thread->shared) + Argument<uint32_t>(arguments, 1);
    thread->ops->copy_part(thread, to, Argument<const char*>(arguments, 0),
                           Argument<uint32_t>(arguments, 2), 1);
  };
  const std::string copies = "kernel `test`, block 0, thread 0: copy_part ";
  const std::vector<std::tuple<uint32_t, uint32_t, uint32_t, std::string>> cases = {
      {0, 0, 3, copies + "of 3 bytes, which must be 1, 2, 4 or 8"},
      {0, 0, 16, copies + "of 16 bytes, which must be 1, 2, 4 or 8"},
      {0, 16, 8,
       copies + "to 8 bytes outside shared memory: at 0 bytes past the end of 16 bytes of shared "
                "memory"},
      {0, 2, 4, copies + "with an address that is not aligned to 4 bytes"},
      {1, 0, 2, copies + "with an address that is not aligned to 2 bytes"},
      {8, 0, 1,
       "kernel `test`, block 0, thread 0: reads 1 byte at 0 bytes past the end of an allocation of "
       "8 bytes"}};
  for (const auto& [from, to, bytes, text] : cases) {
    const char* const data = Allocate<char>(8);
    EXPECT_NE(Run({1, 1, 16}, kernel, data + from, to, bytes), CUDA_SUCCESS);
    EXPECT_EQ(report(), text);
    End();
    Begin();
  }
}

// Each thread calls what an argument says: thread 0 the first, all others the second.
void CallOne(Thread* thread, void* const* arguments) {
  const auto* const ops = thread->ops;
  uint32_t registers[4] = {};
  switch (Argument<uint32_t>(arguments, thread->thread == 0 ? 0 : 1)) {
    case 1:
      return ops->barrier(thread);
    case 2:
      ops->shuffle(thread, 0, 0);
      return;
    case 3:
      ops->shuffle_xor(thread, 0, 1);
      return;
    case 4:
      return ops->mma(thread, QUENCH_MMA_F16, registers, registers, registers);
    case 5:
      return ops->mma(thread, QUENCH_MMA_BF16, registers, registers, registers);
    case 6:
      return ops->mma(thread, QUENCH_MMA_U8 + 1, registers, registers, registers);
    case 7:
      return ops->load_matrices(thread, Shared(thread) + 4 * thread->thread, 0, registers);
    default:
      return;
  }
}

TEST_F(EmulatedRaces, ThreadsThatCallDifferentThings) {
  struct {
    uint32_t threads, first, others;
    const char* text;
  } cases[] = {
      {32, 0, 1, "thread 1: barrier in a block where thread 0 has ended"},
      {32, 1, 0, "thread 0: barrier in a block where thread 1 has ended"},
      {32, 1, 2, "thread 1: shuffle in a warp where thread 0 waits at a barrier"},
      {64, 0, 3, "thread 1: shuffle_xor in a warp where thread 0 has ended"},
      {32, 2, 3, "thread 1: shuffle_xor while thread 0 of its warp calls shuffle"},
      {32, 4, 5, "thread 1: mma of kind 1 while thread 0 of its warp calls mma of kind 0"},
      {32, 6, 6, "thread 0: mma of kind 5, which there is not"},
      {40, 2, 2, "thread 32: shuffle in a warp of 8 threads: it takes 32"},
  };
  for (const auto& [threads, first, others, text] : cases) {
    EXPECT_EQ(Run({1, threads, 512}, CallOne, others, others),
              others == 6 || threads == 40 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS)
        << report();
    EXPECT_EQ(Run({1, threads, 512}, CallOne, first, others), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(report(), std::string("kernel `test`, block 0, ") + text);
    End();
    Begin();
  }
}

TEST_F(EmulatedRaces, RowsOfMatricesAreInSharedMemory) {
  EXPECT_EQ(Run({1, 32, 512}, CallOne, 7u, 7u), CUDA_SUCCESS) << report();
  EXPECT_EQ(Run({1, 32, 511}, CallOne, 7u, 7u), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(report(),
            "kernel `test`, block 0, thread 31: load_matrices of a row outside shared memory: at "
            "15 bytes before the end of 511 bytes of shared memory");
}

TEST_F(EmulatedRaces, KernelsSayThatTheyCooperate) {
  EXPECT_EQ(Run({1, 32, 0, false}, CallOne, 1u, 1u), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(report(),
            "kernel `test`, block 0, thread 0: barrier in a kernel that does not cooperate");
}

}  // namespace
}  // namespace quench::emulated_races_test
