// The number of steps that a service takes at once, learnt from its answers.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace quench::gateway {

class ServiceLoad {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  // Whether one more step may be tried now.
  bool CanStart(Time now) const {
    if (now < closed_until_) return false;
    return running_ < limit_ || (shed_ && now >= probe_at_ && running_ <= limit_);
  }
  // The time at which CanStart may become true by itself; `now` if it will not.
  Time NextChance(Time now) const {
    if (now < closed_until_) return closed_until_;
    return shed_ ? std::max(now, probe_at_) : now;
  }

  void Started() { ++running_; }
  void Ended() { --running_; }
  // The service has begun one of the running steps.
  void Accepted() {
    unreached_ = 0;
    limit_ = std::max(limit_, running_);
    if (!shed_ && running_ >= limit_) limit_ = std::min(2 * limit_, kMost);
  }
  // The service has refused a step, which has ended; it may be asked again after `retry_after`.
  void Shed(Time now, Duration retry_after) {
    shed_ = true;
    limit_ = running_;
    probe_at_ = now + retry_after;
  }
  // Whether a step may wait outside the queue for memory at the service: only one does.
  bool StepAside() { return !std::exchange(aside_, true); }
  void ComeBack() { aside_ = false; }
  // The service did not answer; it is asked again after `pause`.
  void Unreached(Time now, Duration pause) {
    if (now < closed_until_) return;  // another step of the same round has reported it
    ++unreached_;
    closed_until_ = now + pause;
  }
  int unreached() const { return unreached_; }
  int running() const { return running_; }
  int limit() const { return limit_; }
  // Whether the limit is one that the service has set by a refusal.
  bool limit_is_known() const { return shed_; }

 private:
  static constexpr int kFirst = 8;
  static constexpr int kMost = 1024;
  int running_ = 0;
  int limit_ = kFirst;
  int unreached_ = 0;  // in a row
  bool shed_ = false;
  bool aside_ = false;
  Time probe_at_{}, closed_until_{};
};

}  // namespace quench::gateway
