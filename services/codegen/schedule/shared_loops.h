// Choice of the loops of a GPU's nest whose iterations several threads share.
#pragma once

#include "services/codegen/schedule/schedule.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

inline constexpr int kWarp = 32;               // threads
inline constexpr int64_t kWarpValueBytes = 8;  // of shared memory, for what a warp passes on
// Shared memory in which the warps of a block combine their sums.
constexpr int64_t SharedBytes(int threads) { return threads / kWarp * kWarpValueBytes; }

// Sets shared_loops, and what belongs to them, where a task has loops of its own along which it reads
// neighbours, or tasks are few: the threads of a warp, or of a block, then do a task together (rows of
// softmaxes, normalisations, reductions). Short rows stay in registers from their first loop to their
// last. After ChooseTasks.
void ChooseSharedLoops(const Gpu& gpu, const SymbolTable& symbols, Schedule& schedule);

}  // namespace quench::codegen
