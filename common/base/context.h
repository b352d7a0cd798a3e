// The context that every long-running function carries: cancellation, a deadline, where progress
// goes, and the tenant that it runs for.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace quench {

// Set once, from any thread (or a thread that waits for signals); read by the work.
class CancelToken {
 public:
  void Cancel() { source_.request_stop(); }
  bool cancelled() const { return source_.stop_requested(); }
  // For std::stop_callback: what must be told, rather than ask, that it is cancelled.
  std::stop_token stop_token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
};

// Lines that the work's process has written to stderr.
struct WrittenLines {
  std::vector<std::string> latest;
  int64_t count = 0;  // those of `latest` are the last of them
};

struct Progress {
  std::string stage;                                      // "import", "pack weights", ...
  std::string detail;                                     // what is being worked on, may be empty
  int64_t done = 0;                                       // units finished
  int64_t total = 0;                                      // units in all; 0 when unknown
  std::shared_ptr<const WrittenLines> written = nullptr;  // null: none
};
using ProgressSink = std::function<void(const Progress&)>;

// Callers by what they may do: viewers read, users work for their own tenant, operators see to all tenants.
enum class CallerRole { kViewer, kUser, kOperator };

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
  const std::optional<std::chrono::steady_clock::time_point>& deadline() const { return deadline_; }
  void set_deadline(std::chrono::steady_clock::time_point deadline) { deadline_ = deadline; }
  const std::string& request_id() const { return request_id_; }
  void set_request_id(std::string id) { request_id_ = std::move(id); }
  // W3C's trace context, passed on in every call that the work makes; "" outside a trace.
  const std::string& traceparent() const { return traceparent_; }
  void set_traceparent(std::string text) { traceparent_ = std::move(text); }
  // The tenant whose token the caller sent; "" where no token is required.
  const std::string& tenant() const { return tenant_; }
  void set_tenant(std::string tenant) { tenant_ = std::move(tenant); }
  // The caller's role; that of callers whom a server without tokens takes is kOperator.
  CallerRole role() const { return role_; }
  void set_role(CallerRole role) { role_ = role; }

 private:
  std::shared_ptr<CancelToken> cancel_;
  ProgressSink sink_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::string request_id_;
  std::string traceparent_;
  std::string tenant_;
  CallerRole role_ = CallerRole::kUser;
};

}  // namespace quench
