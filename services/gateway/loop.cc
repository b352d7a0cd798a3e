#include "services/gateway/loop.h"

namespace quench::gateway {

ThreadLoop::ThreadLoop() : thread_([this] { Run(); }) {}

void ThreadLoop::Post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void ThreadLoop::After(std::chrono::milliseconds delay, Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    timers_.emplace(Clock::now() + delay, std::move(job));
  }
  wake_.notify_one();
}

int64_t ThreadLoop::UnixMicroseconds() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void ThreadLoop::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  jobs_.clear();
  timers_.clear();
}

void ThreadLoop::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    while (!timers_.empty() && timers_.begin()->first <= now) {
      jobs_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    if (jobs_.empty()) {
      if (timers_.empty()) {
        wake_.wait(lock);
      } else {
        wake_.wait_until(lock, timers_.begin()->first);
      }
      continue;
    }
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

}  // namespace quench::gateway
