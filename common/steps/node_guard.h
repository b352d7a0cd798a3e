// Guards a service whose machine cannot run steps, for lack of disk, files or memory, or because the
// store refuses it. Other servers may run them, so the step goes back to the caller, and this server
// accepts no more until its machine works again.
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

// Turns errors of system calls that are the machine's fault into UNAVAILABLE with NODE_FAULT; leaves all
// others unchanged.
absl::Status WithNodeFault(absl::Status status);
// The same for every error.
absl::Status NodeFault(const absl::Status& status);
// Like WithNodeFault, also for a store that is unreachable or refuses the server's credentials.
absl::Status WithStoreFault(absl::Status status);
bool IsNodeFault(const absl::Status& status);

class NodeGuard {
 public:
  // Tries on a small scale the operations that steps need.
  using Probe = std::function<absl::Status()>;
  NodeGuard(Probe probe, metrics::Service service, metrics::Registry* registry,
            std::chrono::milliseconds period = std::chrono::seconds(10));
  ~NodeGuard();

  // Called before a step is accepted: NODE_FAULT, with RetryInfo and the cause, while out of service.
  absl::Status Check() const;
  // Reports that a step met a fault of the node, which then is out of service until the probe succeeds,
  // for at least one period.
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

// The running steps, so that a drain can end them with a reason.
class RunningSteps {
 public:
  // Runs `work`, which obeys the context's cancellation. UNAVAILABLE with SERVER_DRAINED if End was
  // called before it was done.
  absl::Status Run(const StepContext& context, const std::function<absl::Status()>& work);
  // Cancels running and later steps.
  void End();

 private:
  std::mutex mutex_;
  bool ended_ = false;
  std::set<std::shared_ptr<CancelToken>> running_;
};

}  // namespace quench::steps
