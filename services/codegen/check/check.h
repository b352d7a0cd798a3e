// Checks that a newly made library computes what its model says. One random sample is run by the library,
// and by the interpreter on the graph before any pass: on all of it, or on groups of its nodes, each with
// the values that the library itself computed as the group's inputs.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <span>

#include "common/base/context.h"
#include "common/passes/pass.h"
#include "services/codegen/check/report.h"
#include "services/codegen/options/options.h"
#include "services/codegen/plan/variants.h"

namespace quench::codegen {

struct CheckRequest {
  std::filesystem::path library;             // a shared library
  const Graph& source;                       // the model, canonical or quantized
  std::span<const PlannedVariant> variants;  // the variants in the library
  passes::PassOptions passes;                // with which it was compiled
  std::string target;                        // in the form of --target
  CheckMode mode = CheckMode::kAuto;
  bool tf32 = false;  // CompileOptions::tf32
  std::function<void(const CheckEvidence&)> on_mismatch;
  double compile_seconds = 0;  // of CPU time so far
};

// On a machine with a GPU, a library for GPUs has both its GPU's code and its CPU's checked.
// A mismatch is INTERNAL: the error names the value, its node and kernel, the element, and what it should
// be. If the check is not possible, the report says why.
absl::StatusOr<CheckReport> CheckLibrary(const CheckRequest& request, const StepContext& context);

}  // namespace quench::codegen
