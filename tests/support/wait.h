// Waiting for what another thread does, with a bound.
#pragma once

#include <chrono>
#include <thread>

namespace quench::testing {

// Whether `condition` holds within `limit`; looks every millisecond.
template <typename Condition>
bool WaitFor(Condition condition, std::chrono::seconds limit = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace quench::testing
