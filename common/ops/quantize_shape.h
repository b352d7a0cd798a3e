// Scale and zero point of an element, for QuantizeLinear and DequantizeLinear:
// per tensor (scale of one element), per axis (a vector along `axis`), or blocked (`block_size`
// elements along `axis` share one).
#pragma once

#include <vector>

#include "common/ops/helpers.h"

namespace quench::ops {

// Checks scale (input 1) and zero point (input 2) against x (input 0).
absl::Status RequireScales(const InferContext& op);
bool IsBlocked(const Node& node);
// Output axes of the dims of x, scale and zero point when not blocked.
std::vector<int> ScaleAxes(const OpContext& op, int operand);
// Blocked: loops over x that store element(x, scale, zero point), the last invalid when omitted.
absl::Status LowerBlocked(LowerContext& op,
                          const std::function<absl::StatusOr<E>(std::span<const E>)>& element);
// The attribute output_dtype, kUndefined when not given.
absl::StatusOr<DataType> OutputType(const OpContext& op);

// Types that a tensor may be quantized to.
inline constexpr DataTypes kQuantizedTypes =
    TypeSet({DataType::kI8, DataType::kU8, DataType::kI16, DataType::kU16, DataType::kI4,
             DataType::kU4, DataType::kI2, DataType::kU2, DataType::kF4E2M1}) |
    kFloat8Types;
inline constexpr DataTypes kScaleTypes = TypeSet({DataType::kF32, DataType::kF16, DataType::kBF16});

}  // namespace quench::ops
