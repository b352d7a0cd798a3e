// Files that a program needs beside a compiled model: the runtime for its machine, headers, and a file for CMake.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "services/codegen/targets/resolve.h"

namespace quench::cli {

// The system whose programs run a library for `target`: "aarch64-linux-gnu". UNIMPLEMENTED where this
// build has no runtime for it.
absl::StatusOr<std::string> RuntimeSystem(const codegen::ResolvedTarget& target);

// Names of what WriteRuntime makes.
std::vector<std::string> RuntimeFileNames();

struct ModelBeside {
  std::string library;     // its file's name: model.so
  std::string prefix;      // as CompileOptions has it
  bool registers = false;  // an archive that nothing refers to
};
// `system` as RuntimeSystem gave it; `model` lies in `folder` too, and gets a target of CMake's.
absl::Status WriteRuntime(const std::string& system, const ModelBeside& model,
                          const std::filesystem::path& folder);

}  // namespace quench::cli
