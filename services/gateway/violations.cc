#include "services/gateway/violations.h"

#include "common/base/status.h"

namespace quench::gateway {

absl::Status Violations::Finish() const {
  if (count_ == 0) return absl::OkStatus();
  StatusCollector messages;
  for (const rpc::FieldViolation& violation : violations_) {
    messages.Add(InvalidArgument("`{}` {}", violation.field, violation.description));
  }
  absl::Status status = rpc::WithReason(messages.Finish(), rpc::Reason::kInvalidRequest);
  for (const rpc::FieldViolation& violation : violations_) {
    status = rpc::WithField(std::move(status), violation);
  }
  return status;
}

}  // namespace quench::gateway
