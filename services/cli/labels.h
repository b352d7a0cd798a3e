// Labels: the right class of each row of a model's first output.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace quench::cli {

// From integers in a .npy, a number a line, or the folders that images lie in (ClassesOfFolders); none if `path` is empty.
absl::StatusOr<std::vector<int64_t>> ReadLabels(const std::string& path);

// A class name per line; a last line without an end counts, "\r" at an end does not.
absl::StatusOr<std::vector<std::string>> ReadClassNames(const std::string& path);

}  // namespace quench::cli
