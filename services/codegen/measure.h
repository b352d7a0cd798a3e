// Level 4: kernels chosen by measurement, on this machine.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/codegen/codegen.h"

namespace quench::codegen {

// As Compile, at level 4 too. There the model is built several times, each time
// with other kernels for as many nodes as there are competitors; the builds run in turn, on random
// inputs and one thread, and the time of every node decides. So each kernel is measured where it will
// run: its weights are as cold, and its input as warm, as its neighbours leave them.
//
// About `options.tune_seconds` go to builds and runs, half of them at most to builds; then follows the build that
// is kept. It is the one that predicted costs choose where the measured ones together are no faster.
// INVALID_ARGUMENT where the target's code does not run here, or where there are several variants.
absl::StatusOr<CompileReport> CompileMeasured(const Graph& graph, const CompileOptions& options,
                                              const std::filesystem::path& library,
                                              const std::filesystem::path& header,
                                              const StepContext& context = {});

}  // namespace quench::codegen
