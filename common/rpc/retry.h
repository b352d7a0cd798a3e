// Trying again what failed for a while only.
#pragma once

#include <absl/status/status.h>

#include <chrono>

#include "common/base/context.h"

namespace quench::rpc {

// Whether another try may succeed: UNAVAILABLE, or a server that said after which delay to ask
// again, or one that broke the call off although nobody here had cancelled it.
bool IsTransient(const absl::Status& status);

// One operation's tries.
class Backoff {
 public:
  Backoff(const StepContext& step, std::chrono::milliseconds retry_time)
      : step_(step), retry_time_(retry_time) {}

  // Waits, longer each time, at least as long as the server said; false at once when the retry
  // time is used up, and as soon as the step is cancelled.
  bool Wait(const absl::Status& failure);
  // Something was achieved: the retry time begins anew.
  void Progressed();

 private:
  const StepContext& step_;
  const std::chrono::milliseconds retry_time_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::milliseconds delay_{50};
};

}  // namespace quench::rpc
