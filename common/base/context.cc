#include "common/base/context.h"

namespace quench {

absl::Status StepContext::Check() const {
  if (cancel_->cancelled()) return absl::CancelledError("cancelled");
  if (deadline_ && std::chrono::steady_clock::now() > *deadline_) {
    return absl::DeadlineExceededError("deadline exceeded");
  }
  return absl::OkStatus();
}

}  // namespace quench
