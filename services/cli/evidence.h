// Files for a bug report, where a library computes something else than its model.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "services/codegen/options/options.h"

namespace quench::cli {

// A new folder `quench-check-...` in `parent`: graph.qir; graph.ir.txt, the same without large weights; inputs/, an
// .npy file for each; report.txt. Returns its path.
absl::StatusOr<std::filesystem::path> WriteEvidence(const codegen::CheckEvidence& evidence,
                                                    const std::filesystem::path& parent);

}  // namespace quench::cli
