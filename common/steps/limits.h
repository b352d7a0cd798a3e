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

// The share of one of `slots` steps that run at once, so that all of them together stay below
// `memory`. It is 4 GiB at least: a process maps more than it holds in RAM, and a step that is beyond
// its limit fails, while one that the kernel ends for want of memory runs again.
int64_t MemoryOfEachSlot(int64_t memory, int slots);

// `scratch` empty: the system's folder for temporary files.
StepLimits LimitsOfThisMachine(const std::filesystem::path& scratch, int slots);

}  // namespace quench::steps
