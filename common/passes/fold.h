// Constants computed while compiling.
#pragma once

#include <absl/status/statusor.h>

#include "common/base/context.h"
#include "common/ir/graph.h"

namespace quench::passes {

// Replaces the outputs of `node`, whose inputs are all constants, by constants. It may be a copy of
// one of the graph's: adding constants moves those. An output of the graph keeps its producer.
absl::Status FoldNode(Graph& graph, const Node& node, const StepContext& context);

// The same for a node of the graph, if its inputs are all constants and its outputs not much
// larger.
absl::Status FoldIfConstant(Graph& graph, NodeId id, const StepContext& context);

// Folds dequantized constants and what depends on nothing else.
absl::Status FoldDequantized(Graph& graph, const StepContext& context);

// Constants that the bodies of If, Loop and Scan capture become constants of the bodies, but for
// those that are outputs of one as they are.
void MoveConstantsIntoBodies(Graph& graph);

// The first output of such a node; INVALID_ARGUMENT if it is not one.
absl::StatusOr<Tensor> EvaluateConstant(const Graph& graph, const Node& node,
                                        const StepContext& context);

}  // namespace quench::passes
