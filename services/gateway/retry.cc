#include "services/gateway/retry.h"

#include <algorithm>

#include "common/rpc/errors.h"
#include "google/rpc/error_details.pb.h"

namespace quench::gateway {
namespace {

std::string ReasonOf(const google::rpc::Status& status) {
  google::rpc::ErrorInfo info;
  for (const google::protobuf::Any& detail : status.details()) {
    if (detail.UnpackTo(&info)) return info.reason();
  }
  return "";
}

// The process that did the step ended by itself, or hung.
bool IsOfTheProcess(const std::string& reason) {
  return reason == rpc::ReasonName(rpc::Reason::kStepCrashed) ||
         reason == rpc::ReasonName(rpc::Reason::kStepStalled);
}

// Errors of our services have a reason; those that gRPC makes of broken streams have none.
bool IsOfTheTransport(const absl::Status& status) {
  return (absl::IsInternal(status) || absl::IsUnknown(status)) && rpc::ReasonOf(status).empty();
}

// Whether the gateway's credentials are wrong, or an older server lacks the method or a field: then
// the service must be mended, and its steps can wait.
bool IsRefusedByTheTransport(const absl::Status& status) {
  const std::string reason = rpc::ReasonOf(status);
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) ||
         (absl::IsUnimplemented(status) &&
          (reason.empty() || reason == rpc::ReasonName(rpc::Reason::kUnknownField)));
}

}  // namespace

Ending Classify(const absl::Status& status, bool accepted) {
  const std::string reason = rpc::ReasonOf(status);
  if (!accepted && reason == rpc::ReasonName(rpc::Reason::kNoDevice)) return Ending::kNoDevice;
  if (absl::IsResourceExhausted(status) && rpc::RetryAfterOf(status)) return Ending::kShed;
  if (IsOfTheProcess(reason)) return Ending::kCrashed;
  if (reason == rpc::ReasonName(rpc::Reason::kServerDrained)) return Ending::kDrained;
  if (reason == rpc::ReasonName(rpc::Reason::kNodeFault)) return Ending::kNodeFault;
  if (!accepted && IsRefusedByTheTransport(status)) return Ending::kUnreached;
  // Nobody here cancelled it: its server went down.
  if (absl::IsUnavailable(status) || absl::IsCancelled(status) || IsOfTheTransport(status)) {
    return accepted ? Ending::kLost : Ending::kUnreached;
  }
  if (absl::IsFailedPrecondition(status)) {
    for (const rpc::PreconditionViolation& violation : rpc::PreconditionsOf(status)) {
      if (violation.type == "MISSING") return Ending::kMissingBlob;
    }
  }
  return Ending::kFinal;
}

Failures FailuresOf(const v1::Step& step) {
  Failures failures;
  for (const v1::FailedAttempt& attempt : step.failed_attempts()) {
    if (attempt.attempt() <= step.retried_after_attempt()) continue;
    const std::string reason = ReasonOf(attempt.error());
    if (reason == rpc::ReasonName(rpc::Reason::kGatewayRestarted)) {
      ++failures.reclaimed;
    } else if (IsOfTheProcess(reason)) {
      ++failures.crashed;
    } else if (reason == rpc::ReasonName(rpc::Reason::kServerDrained)) {
      ++failures.drained;
    } else if (reason == rpc::ReasonName(rpc::Reason::kNodeFault)) {
      ++failures.node_faults;
    } else if (reason != rpc::ReasonName(rpc::Reason::kBlobMissing)) {
      ++failures.lost;
    }
  }
  return failures;
}

std::chrono::milliseconds Backoff(std::chrono::milliseconds base, int failures, double jitter) {
  const auto full = base * (1 << std::clamp(failures - 1, 0, 6));
  return std::chrono::milliseconds(
      static_cast<int64_t>(static_cast<double>(full.count()) * (1 - jitter / 2)));
}

}  // namespace quench::gateway
