// How many steps a service takes at once, learnt from its answers.
#pragma once

#include <algorithm>
#include <chrono>

namespace quench::gateway {

class ServiceLoad {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  // One more may be tried now.
  bool CanStart(Time now) const {
    if (now < closed_until_) return false;
    return running_ < limit_ || (shed_ && now >= probe_at_ && running_ <= limit_);
  }
  // When CanStart may become true by itself; `now` if it will not.
  Time NextChance(Time now) const {
    if (now < closed_until_) return closed_until_;
    return shed_ ? std::max(now, probe_at_) : now;
  }

  void Started() { ++running_; }
  void Ended() { --running_; }
  // The service has begun one of those that run.
  void Accepted() {
    unreached_ = 0;
    limit_ = std::max(limit_, running_);
    if (!shed_ && running_ >= limit_) limit_ = std::min(2 * limit_, kMost);
  }
  // It has refused one, which has ended, until `retry_after` has passed.
  void Shed(Time now, Duration retry_after) {
    shed_ = true;
    limit_ = running_;
    probe_at_ = now + retry_after;
  }
  // Nobody answered: asked again after `pause`.
  void Unreached(Time now, Duration pause) {
    if (now < closed_until_) return;  // of those that were asked together
    ++unreached_;
    closed_until_ = now + pause;
  }
  int unreached() const { return unreached_; }
  int running() const { return running_; }
  int limit() const { return limit_; }

 private:
  static constexpr int kFirst = 8;
  static constexpr int kMost = 1024;
  int running_ = 0;
  int limit_ = kFirst;
  int unreached_ = 0;  // in a row
  bool shed_ = false;
  Time probe_at_{}, closed_until_{};
};

}  // namespace quench::gateway
