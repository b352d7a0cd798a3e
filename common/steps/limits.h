// Default limits of one step, from the size of the machine.
#pragma once

#include <cstdint>
#include <filesystem>

namespace quench::steps {

struct StepLimits {
  int64_t memory_bytes =
      0;  // address space: MemoryOfEachSlot of the machine, or of its control group
  int64_t cpu_seconds = 0;  // 4 hours on each CPU
  int64_t disk_bytes = 0;   // half of the disk of `scratch`
  int open_files = 0;
  int processes = 0;  // and threads
};

// The share of one of `slots` simultaneous steps, such that all together stay below `memory`. It is at
// least 4 GiB: a process maps more than it holds in RAM, and a step beyond its limit fails for good,
// while a step that the kernel ends for lack of memory runs again.
int64_t MemoryOfEachSlot(int64_t memory, int slots);

// An empty `scratch` means the system's folder for temporary files.
StepLimits LimitsOfThisMachine(const std::filesystem::path& scratch, int slots);

}  // namespace quench::steps
