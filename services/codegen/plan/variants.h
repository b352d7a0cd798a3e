// The programs of a graph, one for each variant of a target.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/codegen/options/options.h"
#include "services/codegen/plan/build.h"
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

// Stages of a compilation before there is code, from a canonical or quantized graph.
enum class PlanStage {
  kProgram,  // kernels chosen and planned, steps over laid-out values
  kMemory,   // and places for them
};
// The text of each variant's plan (program_text.h).
absl::StatusOr<std::string> PlanText(const Graph& graph, const CompileOptions& options,
                                     PlanStage stage, const StepContext& context = {});
// The graph after codegen's own passes, for whose nodes kernels are chosen.
absl::StatusOr<Graph> GroupGraph(const Graph& graph, const CompileOptions& options,
                                 const StepContext& context = {});

}  // namespace quench::codegen
