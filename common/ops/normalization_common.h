// Code shared by the normalization operators.
#pragma once

#include <functional>

#include "common/ops/nest.h"

namespace quench::ops {

// The attribute `stash_type` (ONNX number, default f32): the float type in which statistics are
// computed and given.
absl::StatusOr<DataType> StashType(const OpContext& ctx);

// Float X, valid `axis`, scale and bias that broadcast to X; output 0 like X.
absl::Status InferTailNormalization(InferContext& ctx);

// The elements under one position of the leading axes; statistics are in the stash type.
struct TailRow {
  Builder& b;
  std::vector<E> extents;     // sizes of axes `axis`, `axis` + 1, ...
  std::vector<E> statistics;  // indices of the mean and such: leading ones, then zeros
  DataType type;              // compute type of the stash type
  std::function<E(std::span<const E>)> at;

  E Sum(const std::function<E(E)>& element) const;
  E Count() const { return b.Let(Cast(ProductOf(b, extents), type), "count"); }
  E Epsilon(const OpContext& ctx) const { return b.F(ctx.node().Float("epsilon", 1e-5), type); }
};

// Per row, `statistics` computes what it needs and returns the function that normalises an element;
// scale (input 1) and bias (input 2, if any) follow.
void LowerTailNormalization(LowerContext& ctx,
                            const std::function<std::function<E(E)>(const TailRow&)>& statistics);

// Mean 0 and variance 1 over `groups` of channels (axis 1) and all spatial axes; input 1 is the
// scale and input 2 the bias, one entry a channel. `groups` must divide the channels.
void LowerGroupNormalization(LowerContext& ctx, E groups, E channels_per_group, DataType type);

}  // namespace quench::ops
