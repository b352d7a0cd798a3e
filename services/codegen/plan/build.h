// Builds a program from a graph and the choices made for its nodes.
#pragma once

#include <absl/status/statusor.h>

#include "common/base/context.h"
#include "services/codegen/options/options.h"
#include "services/codegen/plan/built_program.h"
#include "services/codegen/plan/propose.h"

namespace quench::codegen {

// Plans the kernels of `graph`, the order of calls and the memory they use; emits no code.
// Placement comes later (plan/assign.h). `graph`'s symbol table gets the symbols that kernels
// intern.
absl::StatusOr<BuiltProgram> BuildProgram(const Graph& graph, const Target& target,
                                          const CompileOptions& options, Proposer& proposer,
                                          WeightTable& weights, const StepContext& context);

}  // namespace quench::codegen
