// Level 4: kernels chosen by measurement, on this machine.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/codegen/codegen.h"

namespace quench::codegen {

// Like Compile, also at level 4. There the model is built several times, each time with other kernels for
// all nodes that have competitors; the builds run in turn, on random inputs and one thread, and the time
// of every node decides. So each kernel is measured in the place where it will run: its weights are as
// cold, and its input as warm, as its neighbours leave them.
//
// Builds and runs take about `options.tune_seconds`, builds at most half of that; then the result is built. It has
// the kernels chosen by predicted cost if the measured choices together are no faster. INVALID_ARGUMENT if the
// target's code does not run here, or if there are several variants.
absl::StatusOr<CompileReport> CompileMeasured(const Graph& graph, const CompileOptions& options,
                                              const std::filesystem::path& library,
                                              const std::filesystem::path& header,
                                              const StepContext& context = {});

}  // namespace quench::codegen
