// Code shared by NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: picking the class's
// log-probability, weights, ignored samples and the reduction.
#pragma once

#include <functional>

#include "common/ops/nest.h"

namespace quench::ops {

// Input 0 [N, C, d...] float, input 1 [N, d...] class indices, input 2 [C] weights. Sets output 0:
// [N, d...] with `reduction` none, else a scalar.
absl::Status InferLoss(InferContext& ctx);
// Output 0, given the log-probability at an index vector [n, c, d...].
void LowerLoss(LowerContext& ctx, const std::function<E(std::span<const E>)>& log_probability);
std::vector<AttributeSpec> LossAttributes();

}  // namespace quench::ops
