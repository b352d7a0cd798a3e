// The most memory that a process has had in RAM.
#pragma once

#include <cstdint>

namespace quench::steps {

// Measures the calling process, also after it has entered a sandbox. Unlike this, getrusage begins at what the process
// that started this one had.
class PeakMemory {
 public:
  PeakMemory();
  ~PeakMemory();
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;
  // 0 if the kernel does not say.
  int64_t bytes() const;

 private:
  int status_;  // /proc/self/status
};

}  // namespace quench::steps
