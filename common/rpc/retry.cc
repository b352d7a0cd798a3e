#include "common/rpc/retry.h"

#include <condition_variable>
#include <mutex>
#include <random>

#include "common/rpc/errors.h"

namespace quench::rpc {
namespace {

constexpr std::chrono::milliseconds kFirstDelay{50}, kLongestDelay{5000};

}  // namespace

bool IsTransient(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kCancelled || RetryAfterOf(status).has_value();
}

bool Backoff::Wait(const absl::Status& failure) {
  using std::chrono::milliseconds;
  const auto now = std::chrono::steady_clock::now();
  // Spread, so that clients of a server that comes back do not come together.
  static thread_local std::minstd_rand random{std::random_device()()};
  milliseconds delay(
      std::uniform_int_distribution<int64_t>(delay_.count() / 2, delay_.count())(random));
  delay = std::max(delay, RetryAfterOf(failure).value_or(milliseconds(0)));
  if (now + delay > begin_ + retry_time_) return false;
  if (step_.deadline() && now + delay > *step_.deadline()) return false;
  delay_ = std::min(delay_ * 2, kLongestDelay);
  std::mutex mutex;
  std::condition_variable_any cancelled;
  std::unique_lock lock(mutex);
  (void)cancelled.wait_for(lock, step_.cancel_token()->stop_token(), delay, [] { return false; });
  return !step_.cancel_token()->cancelled();
}

void Backoff::Progressed() {
  begin_ = std::chrono::steady_clock::now();
  delay_ = kFirstDelay;
}

}  // namespace quench::rpc
