// The memory plan, for the compile report.
#pragma once

#include <vector>

#include "services/codegen/plan/program.h"
#include "services/codegen/plan/report.h"

namespace quench::codegen {

// After AssignMemory, by offset.
std::vector<ArenaBuffer> ArenaBuffersOf(const Program& program);
// Sets their `arena_bytes`. Exact, where ArenaBuffer only says which kernels use a buffer: one may be
// done with before another begins within a kernel.
void AddArenaUse(const Program& program, std::vector<KernelReport>& kernels);

}  // namespace quench::codegen
