// What one step may take at most, unless the configuration says it: from the size of the machine.
#pragma once

#include <cstdint>
#include <filesystem>

namespace quench::steps {

struct StepLimits {
  int64_t memory_bytes =
      0;  // address space: all of the machine's memory, or the control group's; 4 GiB at least
  int64_t cpu_seconds = 0;  // 4 hours on each CPU
  int64_t disk_bytes = 0;   // half of the disk of `scratch`
  int open_files = 0;
  int processes = 0;  // and threads
};

// `scratch` empty: the system's folder for temporary files.
StepLimits LimitsOfThisMachine(const std::filesystem::path& scratch);

}  // namespace quench::steps
