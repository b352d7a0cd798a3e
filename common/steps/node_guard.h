// Guards a service whose machine cannot run steps: no disk, no files, no memory, a store that
// refuses it. Other servers can, so the step goes back to the caller, and this server accepts no
// more until its machine works again.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "common/base/context.h"
#include "common/metrics/metrics.h"

namespace quench::steps {

// UNAVAILABLE with NODE_FAULT for errors of the machine that a call of the system gave; all others
// as they are.
absl::Status WithNodeFault(absl::Status status);
// The same for any error.
absl::Status NodeFault(const absl::Status& status);
// As WithNodeFault, also for a store that cannot be reached or refuses the server's credentials.
absl::Status WithStoreFault(absl::Status status);
bool IsNodeFault(const absl::Status& status);

class NodeGuard {
 public:
  // Does on a small scale what steps need.
  using Probe = std::function<absl::Status()>;
  NodeGuard(Probe probe, metrics::Service service, metrics::Registry* registry,
            std::chrono::milliseconds period = std::chrono::seconds(10));
  ~NodeGuard();

  // Before a step is accepted: NODE_FAULT with RetryInfo while the node is out of service, and why.
  absl::Status Check() const;
  // A step has met a fault of the node: out of service until the probe succeeds, a period from now at
  // the earliest.
  void Fault(const absl::Status& status);

 private:
  void Work();

  const Probe probe_;
  const std::chrono::milliseconds period_;
  metrics::Counter& faults_;
  metrics::Counter& turned_away_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::string cause_;  // of the last fault or failed probe
  bool out_ = false, stopping_ = false;
  std::thread thread_;
};

// The steps that run, so that a drain can end them with a reason.
class RunningSteps {
 public:
  // Does `work`, which heeds the context's cancellation. UNAVAILABLE with SERVER_DRAINED when End
  // came before it was done.
  absl::Status Run(const StepContext& context, const std::function<absl::Status()>& work);
  // Cancels what runs, and what comes.
  void End();

 private:
  std::mutex mutex_;
  bool ended_ = false;
  std::set<std::shared_ptr<CancelToken>> running_;
};

}  // namespace quench::steps
