// Shape rules and loops of convolution, shared by Conv, ConvInteger and QLinearConv.
#pragma once

#include <functional>
#include <vector>

#include "common/ops/windows.h"

namespace quench::ops {

std::vector<AttributeSpec> ConvAttributes();

// Output dims of the convolution of input x (N x C x ...) with input w (M x C/group x kernel...).
absl::StatusOr<std::vector<Dim>> ConvDims(InferContext& op, int x, int w);

// Output elements x (C / group) x kernel elements.
Dim ConvMacs(const OpContext& op, int w);

// The terms of one output element: the sum of x(...) * w(...) over them.
struct ConvTerms {
  std::span<const E> index;  // of output 0; index[1] is the output channel
  // number of terms per reduced dim: channels of the group, then kernel positions
  std::span<const E> extents;
  std::function<E(std::span<const E>)> x;  // in the compute type
  std::function<E(std::span<const E>)> w;
};
// Parallel loops over output 0; `element` stores one element.
void LowerConv(LowerContext& op, int x, int w,
               const std::function<void(LowerContext&, const ConvTerms&)>& element);

}  // namespace quench::ops
