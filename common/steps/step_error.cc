#include "common/steps/step_error.h"

#include <algorithm>
#include <array>

#include "common/base/errno_status.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"

namespace quench::steps {
namespace {

using rpc::Reason;

constexpr std::array kOfTheWork = {
    Reason::kCancelled,        Reason::kUnknown,       Reason::kInvalidRequest,
    Reason::kDeadlineExceeded, Reason::kNotFound,      Reason::kAlreadyExists,
    Reason::kPermissionDenied, Reason::kResourceLimit, Reason::kFailedPrecondition,
    Reason::kOutOfRange,       Reason::kUnsupported,   Reason::kInternal,
    Reason::kDataLoss,
};

}  // namespace

absl::Status ErrorOfStep(const google::rpc::Status& sent) {
  constexpr auto kLast = static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (sent.code() < 1 || sent.code() > kLast)
    return Internal("the step's process sent an error with the code {}", sent.code());
  const absl::Status given = rpc::FromProto(sent);
  absl::Status status(given.code(), given.message());
  const auto reason = std::find_if(
      kOfTheWork.begin(), kOfTheWork.end(),
      [name = rpc::ReasonOf(given)](Reason each) { return rpc::ReasonName(each) == name; });
  if (reason != kOfTheWork.end())
    status = rpc::WithReason(std::move(status), *reason, rpc::MetadataOf(given));
  for (const rpc::FieldViolation& field : rpc::FieldsOf(given))
    status = rpc::WithField(std::move(status), field);
  return WithErrno(std::move(status), ErrnoOf(given));
}

}  // namespace quench::steps
