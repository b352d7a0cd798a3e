#include "common/steps/node_guard.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"

namespace quench::steps {
namespace {

// Errors that another machine, or this one later, may not have.
constexpr std::array kOfTheNode = {ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, EAGAIN,
                                   EACCES, EPERM,  EROFS,  EIO,    ENXIO,  ESTALE};

}  // namespace

absl::Status NodeFault(const absl::Status& status) {
  return rpc::Error(rpc::Reason::kNodeFault, MessageOf(status));
}

absl::Status WithNodeFault(absl::Status status) {
  if (status.ok() || !rpc::ReasonOf(status).empty()) return status;
  const int error = ErrnoOf(status);
  const bool node = std::find(kOfTheNode.begin(), kOfTheNode.end(), error) != kOfTheNode.end();
  return node ? NodeFault(status) : status;
}

absl::Status WithStoreFault(absl::Status status) {
  if (absl::IsUnavailable(status) || absl::IsUnauthenticated(status) ||
      absl::IsPermissionDenied(status)) {
    return NodeFault(Annotate(status, "the blob store"));
  }
  return WithNodeFault(std::move(status));
}

bool IsNodeFault(const absl::Status& status) {
  return rpc::ReasonOf(status) == rpc::ReasonName(rpc::Reason::kNodeFault);
}

NodeGuard::NodeGuard(Probe probe, metrics::Service service, metrics::Registry* registry,
                     std::chrono::milliseconds period)
    : probe_(std::move(probe)),
      period_(period),
      faults_(registry->Get(metrics::kNodeFaults, service)),
      turned_away_(registry->Get(metrics::kStepsTurnedAway, service)),
      thread_([this] { Work(); }) {}

NodeGuard::~NodeGuard() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

absl::Status NodeGuard::Check() const {
  const std::lock_guard lock(mutex_);
  if (!out_) return absl::OkStatus();
  turned_away_.Increment();
  return rpc::WithRetryAfter(
      rpc::Error(rpc::Reason::kNodeFault, fmt::format("the server is out of service: {}", cause_)),
      std::chrono::milliseconds(1000));
}

void NodeGuard::Fault(const absl::Status& status) {
  faults_.Increment();
  {
    const std::lock_guard lock(mutex_);
    cause_ = MessageOf(status);
    if (std::exchange(out_, true)) return;
  }
  spdlog::error("out of service: {}", MessageOf(status));
  wake_.notify_all();
}

void NodeGuard::Work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!out_) {
      wake_.wait(lock, [this] { return stopping_ || out_; });
      continue;
    }
    if (wake_.wait_for(lock, period_, [this] { return stopping_; })) return;
    lock.unlock();
    const absl::Status probed = probe_();
    lock.lock();
    if (probed.ok()) {
      out_ = false;
      spdlog::info("in service again");
    } else {
      cause_ = MessageOf(probed);
      spdlog::error("still out of service: {}", cause_);
    }
  }
}

absl::Status RunningSteps::Run(const StepContext& context,
                               const std::function<absl::Status()>& work) {
  const std::shared_ptr<CancelToken>& token = context.cancel_token();
  const auto drained = [] {
    return rpc::Error(rpc::Reason::kServerDrained, "the server drained before the step was done");
  };
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return drained();
    running_.insert(token);
  }
  const absl::Status status = work();
  const std::lock_guard lock(mutex_);
  running_.erase(token);
  return ended_ && absl::IsCancelled(status) ? drained() : status;
}

void RunningSteps::End() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  for (const std::shared_ptr<CancelToken>& token : running_) token->Cancel();
}

}  // namespace quench::steps
