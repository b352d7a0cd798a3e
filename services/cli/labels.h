// Labels: the right class of each row of a model's first output.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace quench::cli {

// From integers in a .npy, or a number a line; none if `path` is empty.
absl::StatusOr<std::vector<int64_t>> ReadLabels(const std::string& path);

}  // namespace quench::cli
