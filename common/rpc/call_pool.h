// Pools in which handlers run: on our threads, never gRPC's, with as many calls as there are slots.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/metrics/metrics.h"

namespace quench::rpc {

class AuditLog;
class Callers;
class Tracer;

// The status of a stream that was idle for options().stream_idle.
absl::Status StreamIdle(std::chrono::milliseconds idle);

// An object that is told the time regularly while it lives.
class Ticked {
 public:
  virtual ~Ticked() = default;
  virtual void Tick(std::chrono::steady_clock::time_point now) = 0;
};

// A service has one pool for its steps, without a queue, and another with a queue for its short calls,
// which are thus answered even while all slots of steps are taken.
class CallPool {
 public:
  struct Options {
    int threads = 0;  // calls that run at once; 0: half of the CPUs, at least 1
    int queue = 0;    // calls that may wait for a thread; more are shed
    std::chrono::milliseconds retry_after{1000};  // the delay that a shed caller is told
    // Whether clients share the places: then none holds more than remain free for others.
    bool shared = false;
    // Streamed calls: the longest time between events, and the shortest between progress events.
    std::chrono::milliseconds heartbeat{5000};
    std::chrono::milliseconds progress_gap{100};
    // Streams whose client sends or reads nothing for longer are ended; 0: never.
    std::chrono::milliseconds stream_idle{5 * 60'000};
    const Callers* callers = nullptr;  // not owned; null: anybody may call
    AuditLog* audit = nullptr;         // not owned; null: calls are not recorded
    Tracer* tracer = nullptr;          // not owned; null: traces are passed on only
    metrics::Registry* registry = &metrics::Global();
    std::optional<metrics::Service> slots_of;  // the service whose quench_slots shows these threads
  };

  explicit CallPool(const Options& options);
  // Waits for the running calls; the server must have been shut down before.
  ~CallPool();

  // Takes a place for `client`, or RESOURCE_EXHAUSTED with SLOTS_FULL and RetryInfo. Never waits.
  absl::Status Admit(const std::string& client);
  // Gives an admitted call's place back, once its handler has returned.
  void Release(const std::string& client);
  // Runs the job of an admitted call.
  void Run(std::function<void()> job);
  // Ticks at least every progress gap and heartbeat until `what` is gone.
  void Watch(std::weak_ptr<Ticked> what);

  const Options& options() const { return options_; }

 private:
  void Work();
  void TickAll();
  void ShowSlots();

  Options options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  int admitted_ = 0;
  std::map<std::string, int> held_;  // by client, if they share
  bool stopping_ = false;

  std::condition_variable tick_;
  std::vector<std::weak_ptr<Ticked>> ticked_;
  std::vector<std::thread> threads_;
};

}  // namespace quench::rpc
