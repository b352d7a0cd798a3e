// Runs steps: the engine's view of the services.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "services/gateway/step_table.h"

namespace quench::gateway {

struct StepCall {
  uint64_t run = 0;  // unique
  const StepRow* row = nullptr;
  std::shared_ptr<const google::protobuf::Message> request;
  std::string request_id;
  std::string traceparent;
};

struct StepResult {
  std::vector<v1::StepOutput> outputs;  // with `result`
  step::v1::Execution execution;
};

// A run gives any number of other events, then one kDone. kUnstored: the work is done, but its result cannot be
// stored; it is kept until StoreAgain or Cancel.
struct StepEvent {
  enum Kind { kAccepted, kProgress, kUnstored, kDone };
  Kind kind = kDone;
  std::string server;                  // kAccepted
  step::v1::Progress progress;         // kProgress
  absl::Status status;                 // kUnstored: why; kDone
  std::shared_ptr<StepResult> result;  // kDone with OK
};

class StepRunner {
 public:
  using OnEvent = std::function<void(StepEvent)>;

  virtual ~StepRunner() = default;
  // Whether this service is configured.
  virtual bool Serves(metrics::Service service) const = 0;
  // Events may come from any thread, possibly before this returns.
  virtual void Start(const StepCall& call, OnEvent on_event) = 0;
  // Ends a run early; its kDone still comes. Does nothing to a run that has ended.
  virtual void Cancel(uint64_t run) = 0;
  // Tries to store the result of a run whose last event was kUnstored; kUnstored or kDone follows.
  virtual void StoreAgain(uint64_t run) = 0;
};

}  // namespace quench::gateway
