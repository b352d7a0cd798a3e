// Shape rules and loops of pooling over windows and over all of the spatial dims.
#pragma once

#include <functional>
#include <vector>

#include "common/ops/windows.h"

namespace quench::ops {

absl::Status InferPool(InferContext& op, DataTypes allowed);

// One window. Terms are numbered from 0 in each spatial dim.
struct PoolWindow {
  std::span<const E> index;    // of output 0
  std::span<const E> extents;  // number of terms per spatial dim
  std::span<const WindowAxis> axes;
  std::function<std::vector<E>(std::span<const E>)> at;  // indices of the input of a term
};
// Parallel loops over output 0; `element` stores one element.
void LowerPool(LowerContext& op,
               const std::function<void(LowerContext&, const PoolWindow&)>& element);

// Output N x C x 1 x 1 ...
absl::Status InferGlobalPool(InferContext& op, DataTypes allowed);
// Stores finish(sum over the spatial dims of value(x), number of elements) for each n, c.
absl::Status LowerGlobalPool(LowerContext& op, BinaryOp reduce, const std::function<E(E)>& value,
                             const std::function<E(E sum, E count)>& finish);

// |x|^p, and the p-th root of a sum of them.
E PowerOfAbs(E x, int64_t p);
E RootOf(E sum, int64_t p);
// The attribute p, at least 1.
absl::StatusOr<int64_t> NormOrder(const OpContext& op);

}  // namespace quench::ops
