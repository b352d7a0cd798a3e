// Does a library that was just made compute what its model says? One random sample goes through the
// library, and through the interpreter of the graph as it was before any pass: all of it, or groups of it,
// each on the values that the library itself has computed before it.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <span>

#include "common/base/context.h"
#include "common/passes/pass.h"
#include "services/codegen/check_report.h"
#include "services/codegen/variants.h"

namespace quench::codegen {

struct CheckRequest {
  std::filesystem::path library;             // a shared one
  const Graph& source;                       // what it should compute: canonical or quantized
  std::span<const PlannedVariant> variants;  // what it was made of
  passes::PassOptions passes;                // that it was compiled with
  std::string target;                        // as --target takes it
  CheckMode mode = CheckMode::kAuto;
  std::function<void(const CheckEvidence&)> on_mismatch;
  double compile_seconds = 0;  // so far, of CPU
};

// A mismatch is INTERNAL: the value, its node and kernel, where, and what it should be. If the
// check is not possible, the report says why.
absl::StatusOr<CheckReport> CheckLibrary(const CheckRequest& request, const StepContext& context);

}  // namespace quench::codegen
