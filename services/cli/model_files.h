// Models of a fleet, as patterns of a command line name them.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

namespace quench::cli {

struct FleetModel {
  std::string path;
  // Unique, of letters, digits, `_`, `-` and `.`: the path below what the pattern names, without its extension, with
  // `.` between folders.
  std::string name;
};

// Files and folders that exist, and patterns of them: `*` and `?` within a name, `[...]`, `**` for any folders. In the order
// of their paths, each once. NOT_FOUND names every pattern that finds nothing.
absl::StatusOr<std::vector<FleetModel>> FindModels(const std::vector<std::string>& patterns);

}  // namespace quench::cli
