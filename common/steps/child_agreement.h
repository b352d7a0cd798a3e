// Agreements between parent and child in addition to their messages.
#pragma once

#include <algorithm>
#include <chrono>

namespace quench::steps {

// The period of a child's pulses, given the time that it may stall; 0: for ever.
inline std::chrono::milliseconds PulsePeriod(std::chrono::milliseconds max_stall) {
  constexpr std::chrono::milliseconds kLongest(1000);
  if (max_stall.count() == 0) return kLongest;
  return std::clamp(max_stall / 10, std::chrono::milliseconds(10), kLongest);
}

// The child's exit code if it could not get memory within its limit.
inline constexpr int kExitOutOfMemory = 77;

}  // namespace quench::steps
