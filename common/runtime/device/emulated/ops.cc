// The instructions of device code (emulated.h): where a launch has failed, the thread leaves its
// kernel here.
#include "common/runtime/device/emulated/runner.h"

namespace quench::emulated {
namespace {

Lane& LaneOf(quench_emulated_thread* thread) { return *static_cast<Lane*>(thread); }

// Nothing on the fibre's stack is destroyed: callers hold nothing.
void LeaveUnless(bool good, const Lane& lane) {
  if (!good) lane.fibre->Leave();
}

void CallBarrier(quench_emulated_thread* thread) {
  Lane& lane = LaneOf(thread);
  LeaveUnless(lane.runner->Barrier(&lane), lane);
}

uint32_t CallShuffle(Lane* lane, WarpOp op, uint32_t value, uint32_t from) {
  uint32_t result = 0;
  WarpCall call;
  call.op = op;
  call.value = value;
  call.lane = from;
  call.result = &result;
  LeaveUnless(lane->runner->CallInWarp(lane, call), *lane);
  return result;
}

uint32_t ShuffleXor(quench_emulated_thread* thread, uint32_t value, uint32_t mask) {
  return CallShuffle(&LaneOf(thread), WarpOp::kShuffleXor, value, mask);
}

uint32_t Shuffle(quench_emulated_thread* thread, uint32_t value, uint32_t from) {
  return CallShuffle(&LaneOf(thread), WarpOp::kShuffle, value, from);
}

uint32_t AtomicMin(quench_emulated_thread* thread, uint32_t* address, uint32_t value) {
  const Lane& lane = LaneOf(thread);
  LeaveUnless(lane.runner->CheckAtomic(lane, address), lane);
  const uint32_t old = *address;
  if (value < old) *address = value;
  return old;
}

void CopyAsync(quench_emulated_thread* thread, void* to, const void* from, uint32_t bytes) {
  Lane& lane = LaneOf(thread);
  LeaveUnless(lane.runner->CopyAsync(&lane, to, from, bytes), lane);
}

void CopyPart(quench_emulated_thread* thread, void* to, const void* from, uint32_t bytes,
              uint32_t present) {
  Lane& lane = LaneOf(thread);
  LeaveUnless(lane.runner->CopyPart(&lane, to, from, bytes, present != 0), lane);
}

void Commit(quench_emulated_thread* thread) { ++LaneOf(thread).commits; }

void WaitForCopies(quench_emulated_thread* thread, uint32_t pending) {
  Lane& lane = LaneOf(thread);
  LeaveUnless(lane.runner->Wait(&lane, pending), lane);
}

void LoadMatricesInWarp(quench_emulated_thread* thread, const void* row, uint32_t transposed,
                        uint32_t* out) {
  Lane& lane = LaneOf(thread);
  WarpCall call;
  call.op = WarpOp::kLoadMatrices;
  call.kind = transposed != 0 ? 1 : 0;
  call.row = row;
  call.result = out;
  LeaveUnless(lane.runner->CallInWarp(&lane, call), lane);
}

void MmaInWarp(quench_emulated_thread* thread, uint32_t kind, uint32_t* sums, const uint32_t* a,
               const uint32_t* b) {
  Lane& lane = LaneOf(thread);
  WarpCall call;
  call.op = WarpOp::kMma;
  call.kind = kind;
  call.result = sums;
  call.a = a;
  call.b = b;
  LeaveUnless(lane.runner->CallInWarp(&lane, call), lane);
}

void CheckAccess(quench_emulated_thread* thread, const void* address, uint64_t bytes,
                 uint32_t write) {
  const Lane& lane = LaneOf(thread);
  LeaveUnless(lane.runner->Check(lane, address, bytes, write != 0 ? Access::kWrite : Access::kRead),
              lane);
}

}  // namespace

const quench_emulated_ops kOps = {.size = sizeof(quench_emulated_ops),
                                  .reserved = 0,
                                  .barrier = CallBarrier,
                                  .shuffle_xor = ShuffleXor,
                                  .shuffle = Shuffle,
                                  .atomic_min = AtomicMin,
                                  .copy_async = CopyAsync,
                                  .commit = Commit,
                                  .wait = WaitForCopies,
                                  .load_matrices = LoadMatricesInWarp,
                                  .mma = MmaInWarp,
                                  .access = CheckAccess,
                                  .copy_part = CopyPart};

}  // namespace quench::emulated
