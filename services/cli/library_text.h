// Compiled libraries, encrypted or not, and keys, as text and JSON that say what they are.
#pragma once

#include <absl/status/statusor.h>

#include <nlohmann/json.hpp>
#include <string>

#include "services/cli/encryption.h"

namespace quench::cli {

// Description by codegen::DescribeLibrary, and `bytes` of the file. A file that is encrypted, for which there is no key, is described
// as far as it tells without one.
absl::StatusOr<nlohmann::json> DescribeLibraryFile(const std::string& file, const KeyFlags& flags);

// Prints such a description for people on stdout.
void PrintLibraryFile(const std::string& file, const nlohmann::json& description);

}  // namespace quench::cli
