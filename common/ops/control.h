// Evaluation of If, Loop, Scan and groups on concrete tensors. The conventions of their inputs:
// bodies.h.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/ops/evaluate_body.h"

namespace quench::ops {

// `sizes` are those of the graph around: rows of a loop that never runs have the declared dims.
absl::StatusOr<std::vector<Tensor>> EvaluateControl(const Node& node,
                                                    std::span<const Tensor* const> inputs,
                                                    const RunSizes& sizes,
                                                    const StepContext& context);

}  // namespace quench::ops
