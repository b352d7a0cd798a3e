// The calls of a program that run on the GPU, and the transfers between its memory and the host's.
#pragma once

#include <cstdint>
#include <vector>

#include "services/codegen/plan/program.h"
#include "services/codegen/plan/report.h"

namespace quench::codegen {

// Threads of a launch, at most: fewer where each task has much scratch. A multiple of 32; 0: so much scratch that the
// kernel cannot run on the GPU.
int64_t DeviceThreads(const KernelPlan& kernel);
// Threads that do a task together.
int64_t TaskThreads(const KernelPlan& kernel);
inline constexpr int kDeviceBlock = 128;  // threads of a block that do tasks by themselves

// Buffers of kernels there begin at multiples of so many bytes, in the caller's memory too.
inline constexpr int64_t kDeviceAlignment = 16;

// Gives each call a place: the GPU where it has a plan for it, touches no memory of the heap, and is estimated to be
// done there sooner, transfers included; with `all`, wherever it can. Storages get a copy in the GPU's memory when
// something there uses them, transfers are added, and lives are counted anew. Every program with device code passes
// through here once, after it is built and before memory is assigned.
// Kernels that stay on the host say so in their reports.
void PlaceOnDevice(Program& program, std::vector<KernelReport>& reports, const SymbolTable& symbols,
                   bool all);

}  // namespace quench::codegen
