// A thread's mailbox: posted jobs run on that thread, one at a time, so that data touched by jobs
// alone need no locks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace quench::gateway {

class Loop {
 public:
  using Clock = std::chrono::steady_clock;
  using Job = std::function<void()>;

  virtual ~Loop() = default;
  // Thread-safe. Jobs run in the order of the calls, during the call or after it.
  virtual void Post(Job job) = 0;
  virtual void After(std::chrono::milliseconds delay, Job job) = 0;
  virtual Clock::time_point Now() const = 0;
  // Unix time in microseconds.
  virtual int64_t UnixMicroseconds() const = 0;
};

class ThreadLoop final : public Loop {
 public:
  ThreadLoop();
  ~ThreadLoop() override { Stop(); }
  void Post(Job job) override;
  void After(std::chrono::milliseconds delay, Job job) override;
  Clock::time_point Now() const override { return Clock::now(); }
  int64_t UnixMicroseconds() const override;
  // Waits for the running job; drops all others, and any that are posted afterwards.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  std::multimap<Clock::time_point, Job> timers_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quench::gateway
