// Evaluates graphs through the loops interpreter: the reference semantics of Quench.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/ops/evaluate_body.h"

namespace quench::ops {

// Runs `graph` (canonical or later) on `inputs` (one per graph input, in order). Shapes are
// re-inferred from the concrete tensors, so any input that the declared types admit works. Errors
// name the node. Tensors no longer needed are freed as it goes.
absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, std::span<const Tensor> inputs,
                                             const StepContext& context = {},
                                             const EvaluateOptions& options = {});

// Runs a single node on concrete inputs (null for omitted ones).
absl::StatusOr<std::vector<Tensor>> EvaluateNode(const Node& node,
                                                 std::span<const Tensor* const> inputs,
                                                 const StepContext& context = {});

// Checks the caller's tensors against the graph's inputs: count, dtype, rank, fixed sizes, equal
// symbols, ranges. Reports every mismatch at once.
absl::Status CheckInputs(const Graph& graph, std::span<const Tensor> inputs);

}  // namespace quench::ops
