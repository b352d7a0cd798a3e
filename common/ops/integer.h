// Integer arithmetic of quantised operators: parameters per tensor or per channel, accumulators,
// requantisation.
#pragma once

#include <initializer_list>

#include "common/ops/conv_shape.h"
#include "common/ops/helpers.h"

namespace quench::ops {

// Each of the inputs, if present, is i8 or u8.
absl::Status RequireByte(const OpContext& op, std::initializer_list<int> inputs);
// Input i, if present, is a scalar or a vector of 1 or `channels` elements.
absl::Status RequireParameter(const OpContext& op, int i, Dim channels);
// The parameter of `channel` in input i (a scalar, or a vector of 1 or one per channel), in its
// compute type.
E Parameter(LowerContext& op, int i, E channel);

// Sum over the terms of (x - x_zero) * (w - w_zero) in i32; zero points are inputs and may be
// omitted.
E ConvAccumulator(LowerContext& op, const ConvTerms& terms, int x_zero, int w_zero);

// clamp(rne(f32(sum) * scale) + zero_point) in `type`, everywhere: one f32 product, not fused.
E Requantise(E sum, E scale, E zero_point, DataType type);
// clamp(rne(value) + zero_point) in integer `type`; value is a float, zero_point may be invalid
// (0). NaN gives 0.
E RoundToInteger(E value, E zero_point, DataType type);
// The f32 that becomes `type` (one of the f8 kinds) when it is stored: what is too large is the
// largest finite value of the type, or, if not `saturate`, infinity or NaN.
E ToFloat8(E value, DataType type, bool saturate);

}  // namespace quench::ops
