// Tensors of attention heads: [batch, heads, sequence, size], or [batch, sequence, heads * size].
#pragma once

#include "common/ops/nest.h"

namespace quench::ops {

// Dims of input `i` as four; `heads` splits the last axis of a tensor of rank 3 (0: not given).
struct HeadDims {
  Dim batch, heads, sequence, size;
};
absl::StatusOr<HeadDims> HeadDimsOf(const OpContext& ctx, int i, int64_t heads);

// Indices of element (n, h, s, k) in a tensor of rank 4 or 3; `size` is the head size.
std::vector<E> HeadIndex(int rank, E n, E h, E s, E k, E size);

}  // namespace quench::ops
