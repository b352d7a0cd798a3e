// Errors of system calls as statuses.
#pragma once

#include <absl/status/status.h>

#include <filesystem>
#include <string_view>

namespace quench {

// Turns errno into a status that names the path and what would be right.
absl::Status ErrnoStatus(int error, std::string_view action, const std::filesystem::path& path);
// The status with `error`; unchanged for 0 and for no error.
absl::Status WithErrno(absl::Status status, int error);
// The `error` of a status that has one from here, wherever it has been since; 0 for any other.
int ErrnoOf(const absl::Status& status);

}  // namespace quench
