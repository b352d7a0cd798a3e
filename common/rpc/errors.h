// Errors on the wire. Inside, an error is an absl::Status; the details on which clients base decisions -
// reason, fields, delay, preconditions - are its payloads, messages of google/rpc/error_details.proto.
// On the wire they travel as google.rpc.Status in `grpc-status-details-bin`.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace google::rpc {
class Status;
}
namespace grpc {
class Status;
}

namespace quench::rpc {

// reasons.def is the registry.
enum class Reason {
#define QUENCH_REASON(name, text, code, meaning) name,
#include "common/rpc/reasons.def"
#undef QUENCH_REASON
};
const char* ReasonName(Reason reason);
// The reason for errors of this code that have none of their own.
Reason DefaultReason(absl::StatusCode code);

struct FieldViolation {
  std::string field;  // path in the request: `module.digest`
  std::string description;
  bool operator==(const FieldViolation&) const = default;
};
struct PreconditionViolation {
  std::string type;     // `MISSING`
  std::string subject;  // `blobs/HASH/SIZE`
  std::string description;
  bool operator==(const PreconditionViolation&) const = default;
};

struct QuotaViolation {
  std::string subject;  // `tenant:NAME`
  std::string description;
  bool operator==(const QuotaViolation&) const = default;
};

// An error with a reason and the code that the registry gives it.
absl::Status Error(Reason reason, const std::string& message);
// Each adds one detail to a status that is not OK. An existing detail of its kind is replaced; violations
// are added to existing ones.
absl::Status WithReason(absl::Status status, Reason reason,
                        const std::map<std::string, std::string>& metadata = {});
// Adds the id of the trace to the reason's metadata, as `trace_id`, unless it has one; the error gets its code's reason if it
// has none.
absl::Status WithTrace(absl::Status status, const std::string& trace_id);
absl::Status WithRetryAfter(absl::Status status, std::chrono::milliseconds delay);
absl::Status WithField(absl::Status status, const FieldViolation& violation);
absl::Status WithPrecondition(absl::Status status, const PreconditionViolation& violation);
absl::Status WithQuota(absl::Status status, const QuotaViolation& violation);

// INVALID_ARGUMENT "`field`: `what`" with this one violation.
absl::Status FieldError(const std::string& field, const std::string& what);

// Details that a status carries; empty if it has none.
std::string ReasonOf(const absl::Status& status);
std::map<std::string, std::string> MetadataOf(const absl::Status& status);
std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status);
std::vector<FieldViolation> FieldsOf(const absl::Status& status);
std::vector<PreconditionViolation> PreconditionsOf(const absl::Status& status);
std::vector<QuotaViolation> QuotasOf(const absl::Status& status);

// Every error gets a reason here. Some clients refuse trailers of more than 8 KiB: long messages and
// lists of violations are cut to fit.
grpc::Status ToGrpc(const absl::Status& status);
// Code, message and details as the server gave them.
absl::Status FromGrpc(const grpc::Status& status);

// The same as a message, uncut, for uses without a limit of size.
google::rpc::Status ToProto(const absl::Status& status);
absl::Status FromProto(const google::rpc::Status& status);

}  // namespace quench::rpc
