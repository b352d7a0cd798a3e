// metadata.json, which `quench compile --export-metadata` writes beside a library.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>

#include "services/cli/remote.h"

namespace quench::cli {

struct MetadataFacts {
  std::filesystem::path library;  // not encrypted yet
  std::string model;              // the file's name
  int64_t opt_level = 3;
  bool halves = false;  // --float16 or --bfloat16
};
// Description that the library has of itself, and how it was made: the form is in docs/metadata.schema.json.
absl::StatusOr<std::string> MetadataOf(const Made& made, const MetadataFacts& facts);

}  // namespace quench::cli
