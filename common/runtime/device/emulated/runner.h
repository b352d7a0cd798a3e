// A launch that runs (blocks.h), from inside, for the files that it is spread over.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/runtime/device/emulated/blocks.h"
#include "common/runtime/device/emulated/fibre.h"
#include "common/runtime/device/emulated/shadow.h"
#include "common/runtime/device/emulated/warp_ops.h"

namespace quench::emulated {

class Runner;

enum class Waits : uint8_t { kNot, kAtBarrier, kInWarp, kEnded };

// copy_async: what is not there yet.
struct PendingCopy {
  void* to;
  const void* from;
  uint32_t bytes;
  uint32_t size;   // of them and the zeros behind
  uint64_t group;  // the number of commits before it
};

// A thread of the block that runs.
struct Lane : quench_emulated_thread {
  Runner* runner = nullptr;
  Fibre* fibre = nullptr;
  Waits waits = Waits::kNot;
  WarpCall call;  // if it waits in a warp
  std::vector<PendingCopy> copies;
  uint64_t commits = 0;
};

class Runner {
 public:
  Runner(const Launch& launch, const Memory& memory);
  Failure Run();

  // The ops, called on the fibre of `lane`. False: the launch has failed, and the fibre must leave.
  bool Barrier(Lane* lane);
  bool CallInWarp(Lane* lane, const WarpCall& call);
  bool Check(const Lane& lane, const void* address, uint64_t bytes, Access access);
  // As an atomic operation: `address` must be aligned, too.
  bool CheckAtomic(const Lane& lane, const uint32_t* address);
  bool CopyAsync(Lane* lane, void* to, const void* from, uint32_t bytes);
  bool CopyPart(Lane* lane, void* to, const void* from, uint32_t bytes, bool present);
  bool Wait(Lane* lane, uint32_t pending);

 private:
  static void RunLane(void* lane);  // bodies of fibres
  static void RunLanesInTurn(void* runner);

  void BeginLane(uint32_t thread, uint32_t block, Lane* lane);
  bool RunBlock(uint32_t block);
  bool RunTogether(uint32_t block);
  bool Advance();  // every thread that waits for nothing, until it waits
  bool Stuck();    // reports why no thread can go on
  bool ArriveInWarp(const Lane& lane);
  void EndBarrier();

  // In accesses.cc.
  bool CheckShared(const Lane& lane, uint64_t offset, uint64_t bytes, Access access);
  bool CheckRow(const Lane& lane);
  bool Outside(const Lane& lane, uint64_t address, uint64_t bytes, Access access);
  std::string Place(const Lane& lane, uint64_t address) const;
  // `size` bytes of shared memory, of which `bytes` are at `from` and the others 0. `name`: of the operation.
  bool Copy(Lane* lane, const std::string& name, const PendingCopy& copy);
  bool InAllocation(uint64_t address, uint64_t bytes);
  // Accounts for the bytes that a thread has written to global memory since its last call.
  bool Settle();

  bool Fail(const Lane& lane, CUresult code, const std::string& text);  // false
  bool failed() const { return failure_.code != CUDA_SUCCESS; }

  const Launch& launch_;
  const Memory& memory_;
  Failure failure_;
  Span shared_;
  uint32_t block_ = 0;
  std::vector<Lane> lanes_;
  uint32_t at_barrier_ = 0, ended_ = 0;
  uint32_t barriers_ = 0;  // of this block so far

  Span seen_[4];  // allocations that were accessed last
  uint32_t next_seen_ = 0;
  SharedShadow shared_shadow_;
  GlobalShadow global_shadow_;
  struct Write {
    uint32_t thread;
    Span span;
  };
  std::optional<Write> write_;  // not in global_shadow_ yet
};

extern const quench_emulated_ops kOps;

}  // namespace quench::emulated
