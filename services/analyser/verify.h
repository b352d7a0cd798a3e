// Checks that a library computes what its model says, in two parts: `kernels`, whether the code computes
// the graph that the passes made, and `rewrites`, whether that graph computes the same as the model.
// the graph that the passes made, and `rewrites`, whether that graph computes the same as the model.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/analyser/verify_report.h"

namespace quench::analyser {

// Compares a library with its model on random inputs that the model can take. A mismatch is a report
// with passed = false, not an error. Memory: one sample's quantized values; with layers, one sample's values.
absl::StatusOr<VerifyReport> Verify(const Graph& canonical, const std::filesystem::path& artifact,
                                    const VerifyOptions& asked, const StepContext& context = {});

std::string ToTable(const VerifyReport& report, int samples);
std::string ToJson(const VerifyReport& report, int samples);

}  // namespace quench::analyser
