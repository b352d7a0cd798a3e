// Retries of calls after passing failures.
#pragma once

#include <absl/status/status.h>

#include <chrono>

#include "common/base/context.h"

namespace quench::rpc {

// Whether another try may succeed: the error is UNAVAILABLE, or says when to ask again, or the server
// broke off the call although it was not cancelled here.
bool IsTransient(const absl::Status& status);

// The tries of one operation.
class Backoff {
 public:
  Backoff(const StepContext& step, std::chrono::milliseconds retry_time)
      : step_(step), retry_time_(retry_time) {}

  // Waits, longer each time, at least as long as the server said. Returns false at once if the retry
  // time is used up, and as soon as the step is cancelled.
  bool Wait(const absl::Status& failure);
  // Called after progress: the retry time begins anew.
  void Progressed();

 private:
  const StepContext& step_;
  const std::chrono::milliseconds retry_time_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::milliseconds delay_{50};
};

}  // namespace quench::rpc
