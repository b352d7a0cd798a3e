// What every long-running function carries: cancellation, a deadline, and where progress goes.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace quench {

// Set once, from any thread (or a signal-handling thread); read by the work.
class CancelToken {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

struct Progress {
  std::string stage;   // "import", "pack weights", ...
  std::string detail;  // what is being worked on, may be empty
  int64_t done = 0;    // units finished
  int64_t total = 0;   // units in all; 0 when unknown
};
using ProgressSink = std::function<void(const Progress&)>;

class StepContext {
 public:
  StepContext() : cancel_(std::make_shared<CancelToken>()) {}
  StepContext(std::shared_ptr<CancelToken> cancel, ProgressSink sink)
      : cancel_(std::move(cancel)), sink_(std::move(sink)) {}

  // OK, or CANCELLED / DEADLINE_EXCEEDED. Long loops call this at least every 100 ms.
  absl::Status Check() const;

  void Report(const Progress& progress) const {
    if (sink_) sink_(progress);
  }

  const std::shared_ptr<CancelToken>& cancel_token() const { return cancel_; }
  void set_deadline(std::chrono::steady_clock::time_point deadline) { deadline_ = deadline; }
  const std::string& request_id() const { return request_id_; }
  void set_request_id(std::string id) { request_id_ = std::move(id); }

 private:
  std::shared_ptr<CancelToken> cancel_;
  ProgressSink sink_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::string request_id_;
};

}  // namespace quench
