// The programs of a graph, one for each variant of a target.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <vector>

#include "common/base/context.h"
#include "services/codegen/build.h"
#include "services/codegen/codegen.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

struct PlannedVariant {
  Target target;
  Graph graph;  // with its own symbol table, to which its plans refer
  BuiltProgram built;
  size_t weights_end = 0;  // entries of the weight table from it and earlier variants
};

// A copy with its own symbol table, bodies included: kernels of one variant must not name symbols of
// another.
Graph WithOwnSymbols(const Graph& graph);

// Chooses and plans the kernels of `groups` and places its memory; emits no code. Each program is
// verified.
absl::StatusOr<std::vector<PlannedVariant>> PlanVariants(const Graph& groups,
                                                         const std::vector<Target>& targets,
                                                         const CompileOptions& options,
                                                         WeightTable& weights,
                                                         const StepContext& context);

}  // namespace quench::codegen
