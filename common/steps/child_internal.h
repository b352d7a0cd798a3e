// Agreements between parent and child beside their messages.
#pragma once

#include <algorithm>
#include <chrono>

namespace quench::steps {

// How often a child that may stall for so long sends a pulse.
inline std::chrono::milliseconds PulsePeriod(std::chrono::milliseconds max_stall) {
  return std::clamp(max_stall / 10, std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
}

// The child could not get memory within its limit.
inline constexpr int kExitOutOfMemory = 77;

}  // namespace quench::steps
