// Agreements between parent and child in addition to their messages.
#pragma once

#include <algorithm>
#include <chrono>

namespace quench::steps {

// The period of a child's pulses, given the time that it may stall.
inline std::chrono::milliseconds PulsePeriod(std::chrono::milliseconds max_stall) {
  return std::clamp(max_stall / 10, std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
}

// The child's exit code if it could not get memory within its limit.
inline constexpr int kExitOutOfMemory = 77;

}  // namespace quench::steps
