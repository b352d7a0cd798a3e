#include "common/base/errno_status.h"

#include <absl/strings/cord.h>
#include <absl/strings/numbers.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/base/status.h"

namespace quench {
namespace {

constexpr char kErrnoPayload[] = "quench.errno";

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kFailedPrecondition;
  }
}

}  // namespace

absl::Status ErrnoStatus(int error, std::string_view action, const std::filesystem::path& path) {
  return WithErrno(absl::Status(CodeOf(error), fmt::format("cannot {} `{}`: {}", action,
                                                           path.string(), std::strerror(error))),
                   error);
}

absl::Status WithErrno(absl::Status status, int error) {
  if (error != 0)
    status.SetPayload(kErrnoPayload, absl::Cord(absl::string_view(std::to_string(error))));
  return status;
}

int ErrnoOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kErrnoPayload);
  int error = 0;
  return payload && absl::SimpleAtoi(std::string(*payload), &error) ? error : 0;
}

}  // namespace quench
