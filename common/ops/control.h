// Evaluation of If, Loop, Scan and groups on concrete tensors. The conventions of their inputs:
// bodies.h.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <vector>

#include "common/ops/evaluate.h"

namespace quench::ops {

absl::StatusOr<std::vector<Tensor>> EvaluateControl(const Node& node,
                                                    std::span<const Tensor* const> inputs,
                                                    const StepContext& context);

// Evaluate without checking the inputs against the declared types: sizes in a body differ from one
// iteration to the next.
absl::StatusOr<std::vector<Tensor>> EvaluateBody(const Graph& graph, std::span<const Tensor> inputs,
                                                 const StepContext& context,
                                                 const EvaluateOptions& options = {});

}  // namespace quench::ops
