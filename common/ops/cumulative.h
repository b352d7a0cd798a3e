// Running sums and products along an axis: attributes `exclusive` and `reverse`, the axis is
// input 1.
#pragma once

#include "common/ops/helpers.h"

namespace quench::ops {

absl::Status InferCumulative(InferContext& op);
// element(i) = start op x(0) op ... op x(i).
absl::Status LowerCumulative(LowerContext& op, BinaryOp step, double start);

}  // namespace quench::ops
