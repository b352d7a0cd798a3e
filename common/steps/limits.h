// Default limits of one step, and the memory of all together, from the size of the machine.
#pragma once

#include <cstdint>
#include <filesystem>

namespace quench::steps {

struct StepLimits {
  int64_t memory_bytes =
      0;  // address space: MemoryOfEachSlot of the machine, or of its control group
  // The limit of a step that is known to need more, or that runs alone: MemoryForSteps, if that is more.
  int64_t most_memory_bytes = 0;
  int64_t cpu_seconds = 0;  // 4 hours on each CPU
  int64_t disk_bytes = 0;   // half of the disk of `scratch`
  int open_files = 0;
  int processes = 0;  // and threads
};

// The part of `memory` that is for steps. A tenth, at least 512 MiB and at most half, is for the services and the system.
int64_t MemoryForSteps(int64_t memory);

// The memory of the machine, or of its control group.
int64_t MemoryOfThisMachine();

// The share of one of `slots` simultaneous steps, such that all together stay below `memory`. It is at
// least 4 GiB: a process maps more than it holds in RAM, and MemoryBudget sees to it that there is RAM for it.
int64_t MemoryOfEachSlot(int64_t memory, int slots);

// An empty `scratch` means the system's folder for temporary files.
StepLimits LimitsOfThisMachine(const std::filesystem::path& scratch, int slots);

}  // namespace quench::steps
