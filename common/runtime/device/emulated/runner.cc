#include "common/runtime/device/emulated/runner.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace quench::emulated {
namespace {

// Fibres and the memory of a block, kept for the next launch.
struct Pool {
  std::vector<std::unique_ptr<Fibre>> fibres;
  Span shared;  // between inaccessible pages

  Fibre* FibreOf(uint32_t index) {
    while (fibres.size() <= index) fibres.push_back(std::make_unique<Fibre>());
    return fibres[index].get();
  }
  // Shared memory of so many bytes, its end against the page behind it. Empty at 0 if there is no
  // memory.
  Span Shared(uint32_t bytes);
};

Pool& ThePool() {
  static auto& pool = *new Pool;
  return pool;
}

Span Pool::Shared(uint32_t bytes) {
  constexpr uint64_t kSharedAlignment = 128;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (shared.end == 0 || shared.end - shared.begin < bytes) {
    const uint64_t size = RoundUp(std::max<uint64_t>(bytes, 227 << 10), page);
    void* const pages = mmap(nullptr, size + 2 * page, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return {};
    const uint64_t begin = std::bit_cast<uint64_t>(pages) + page;
    if (mprotect(std::bit_cast<void*>(begin), size, PROT_READ | PROT_WRITE) != 0) return {};
    shared = {begin, begin + size};
  }
  const uint64_t begin =
      (shared.end - RoundUp(bytes, kEndAlignment)) / kSharedAlignment * kSharedAlignment;
  return {begin, begin + bytes};
}

std::string Thread(uint32_t thread) { return "thread " + std::to_string(thread); }

// "mma of kind 1".
std::string Named(const WarpCall& call) {
  const std::string name = WarpOpName(call.op);
  if (call.op == WarpOp::kMma) return name + " of kind " + std::to_string(call.kind);
  return call.op == WarpOp::kLoadMatrices && call.kind != 0 ? name + ", transposed," : name;
}

bool IsInWarp(const Lane& lane) { return lane.waits == Waits::kInWarp; }

}  // namespace

Runner::Runner(const Launch& launch, const Memory& memory)
    : launch_(launch),
      memory_(memory),
      lanes_(launch.entry->cooperates != 0 ? launch.threads : 1) {}

bool Runner::Fail(const Lane& lane, CUresult code, const std::string& text) {
  failure_ = {code, std::string("kernel `") + launch_.entry->name + "`, block " +
                        std::to_string(lane.block) + ", " + Thread(lane.thread) + ": " + text};
  return false;
}

void Runner::BeginLane(uint32_t thread, uint32_t block, Lane* lane) {
  lane->thread = thread;
  lane->block = block;
  lane->threads = launch_.threads;
  lane->blocks = launch_.blocks;
  lane->shared = std::bit_cast<void*>(shared_.begin);
  lane->ops = &kOps;
  lane->runner = this;
  lane->waits = Waits::kNot;
  lane->copies.clear();
  lane->commits = 0;
}

Failure Runner::Run() {
  shared_ = ThePool().Shared(launch_.shared_bytes);
  if (shared_.begin == 0) return {CUDA_ERROR_OUT_OF_MEMORY, "no memory for a block"};
  for (uint32_t i = 0; i < launch_.blocks && !failed(); ++i) {
    RunBlock(launch_.reverse ? launch_.blocks - 1 - i : i);
  }
  return failure_;
}

bool Runner::RunBlock(uint32_t block) {
  block_ = block;
  std::memset(std::bit_cast<void*>(shared_.begin), kPoison, launch_.shared_bytes);
  shared_shadow_.Begin(launch_.shared_bytes);
  at_barrier_ = ended_ = barriers_ = 0;
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].fibre = ThePool().FibreOf(i);
    BeginLane(i, block, &lanes_[i]);
    const bool together = launch_.entry->cooperates != 0;
    void* const argument = together ? static_cast<void*>(&lanes_[i]) : this;
    if (!lanes_[i].fibre->Start(together ? RunLane : RunLanesInTurn, argument)) {
      return Fail(lanes_[i], CUDA_ERROR_OUT_OF_MEMORY, "no memory for its stack");
    }
  }
  if (launch_.entry->cooperates != 0) return RunTogether(block);
  lanes_[0].fibre->Resume();
  return !failed();
}

void Runner::RunLane(void* lane) {
  auto& self = *static_cast<Lane*>(lane);
  Runner& runner = *self.runner;
  runner.launch_.entry->kernel(&self, runner.launch_.arguments);
  if (runner.Settle()) self.waits = Waits::kEnded;
}

void Runner::RunLanesInTurn(void* runner) {
  auto& self = *static_cast<Runner*>(runner);
  Lane& lane = self.lanes_[0];
  const uint32_t threads = self.launch_.threads;
  for (uint32_t i = 0; i < threads; ++i) {
    self.BeginLane(self.launch_.reverse ? threads - 1 - i : i, self.block_, &lane);
    self.launch_.entry->kernel(&lane, self.launch_.arguments);
    if (!self.Settle()) return;
  }
}

bool Runner::RunTogether(uint32_t /*block*/) {
  while (ended_ < launch_.threads) {
    if (at_barrier_ == launch_.threads) EndBarrier();
    if (!Advance()) return false;
  }
  return true;
}

bool Runner::Advance() {
  bool some = false;
  for (uint32_t i = 0; i < launch_.threads; ++i) {
    Lane& lane = lanes_[launch_.reverse ? launch_.threads - 1 - i : i];
    if (lane.waits != Waits::kNot) continue;
    some = true;
    lane.fibre->Resume();
    if (failed()) return false;
    if (lane.waits == Waits::kAtBarrier) ++at_barrier_;
    if (lane.waits == Waits::kEnded) ++ended_;
    if (lane.waits == Waits::kInWarp && !ArriveInWarp(lane)) return false;
  }
  return some || at_barrier_ == launch_.threads || Stuck();
}

void Runner::EndBarrier() {
  for (Lane& lane : lanes_) lane.waits = Waits::kNot;
  at_barrier_ = 0;
  ++barriers_;
  shared_shadow_.Barrier();
}

// Performs an operation that `lane` is the last of its warp to call.
bool Runner::ArriveInWarp(const Lane& lane) {
  const uint32_t first = lane.thread / kWarp * kWarp;
  const uint32_t count = std::min(kWarp, launch_.threads - first);
  const std::string name = WarpOpName(lane.call.op);
  if (count < kWarp) {
    return Fail(lane, CUDA_ERROR_LAUNCH_FAILED,
                name + " in a warp of " + std::to_string(count) + " threads: it takes 32");
  }
  if (lane.call.op == WarpOp::kMma && lane.call.kind > QUENCH_MMA_U8) {
    return Fail(lane, CUDA_ERROR_LAUNCH_FAILED, Named(lane.call) + ", which there is not");
  }
  Lane* const lanes = &lanes_[first];
  if (!std::all_of(lanes, lanes + kWarp, IsInWarp)) return true;
  std::array<WarpCall*, kWarp> calls;
  for (uint32_t i = 0; i < kWarp; ++i) {
    calls[i] = &lanes[i].call;
    if (calls[i]->op != lanes[0].call.op || calls[i]->kind != lanes[0].call.kind) {
      return Fail(lanes[i], CUDA_ERROR_LAUNCH_FAILED,
                  Named(*calls[i]) + " while " + Thread(lanes[0].thread) + " of its warp calls " +
                      Named(lanes[0].call));
    }
    if (calls[i]->op == WarpOp::kLoadMatrices && !CheckRow(lanes[i])) return false;
  }
  PerformWarpOp(calls);
  for (uint32_t i = 0; i < kWarp; ++i) lanes[i].waits = Waits::kNot;
  return true;
}

bool Runner::Stuck() {
  for (const Lane& lane : lanes_) {
    if (!IsInWarp(lane)) continue;
    const Lane* const warp = &lanes_[lane.thread / kWarp * kWarp];
    const Lane* const missing = std::find_if_not(warp, warp + kWarp, IsInWarp);
    return Fail(lane, CUDA_ERROR_LAUNCH_FAILED,
                std::string(WarpOpName(lane.call.op)) + " in a warp where " +
                    Thread(missing->thread) +
                    (missing->waits == Waits::kEnded ? " has ended" : " waits at a barrier"));
  }
  const auto waiting = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return lane.waits == Waits::kAtBarrier;
  });
  const auto ended = std::find_if(lanes_.begin(), lanes_.end(),
                                  [](const Lane& lane) { return lane.waits == Waits::kEnded; });
  if (waiting == lanes_.end()) return true;  // all have ended
  return Fail(*waiting, CUDA_ERROR_LAUNCH_FAILED,
              "barrier in a block where " + Thread(ended->thread) + " has ended");
}

bool Runner::Barrier(Lane* lane) {
  if (!Settle()) return false;
  if (launch_.entry->cooperates == 0) {
    return Fail(*lane, CUDA_ERROR_LAUNCH_FAILED, "barrier in a kernel that does not cooperate");
  }
  lane->waits = Waits::kAtBarrier;
  lane->fibre->Yield();
  return true;
}

bool Runner::CallInWarp(Lane* lane, const WarpCall& call) {
  if (!Settle()) return false;
  if (launch_.entry->cooperates == 0) {
    return Fail(*lane, CUDA_ERROR_LAUNCH_FAILED,
                std::string(WarpOpName(call.op)) + " in a kernel that does not cooperate");
  }
  lane->call = call;
  lane->waits = Waits::kInWarp;
  lane->fibre->Yield();
  return true;
}

Failure Run(const Launch& launch, const Memory& memory) { return Runner(launch, memory).Run(); }

}  // namespace quench::emulated
