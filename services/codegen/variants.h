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
  Graph graph;  // with a symbol table of its own, which its plans speak of
  BuiltProgram built;
  size_t weights_end = 0;  // entries of the weight table that it and those before it brought
};

// A copy with a symbol table of its own, bodies included: kernels of one variant must not name
// symbols of another's.
Graph WithOwnSymbols(const Graph& graph);

// Chooses and plans the kernels of `groups` and places its memory: nothing is emitted. Each program is
// verified.
absl::StatusOr<std::vector<PlannedVariant>> PlanVariants(const Graph& groups,
                                                         const std::vector<Target>& targets,
                                                         const CompileOptions& options,
                                                         WeightTable& weights,
                                                         const StepContext& context);

}  // namespace quench::codegen
