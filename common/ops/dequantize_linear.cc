#include "common/ops/quantize_shape.h"

namespace quench::ops {
namespace {

absl::Status InferDequantizeLinear(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kQuantizedTypes | TypeSet({DataType::kI32})));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {0, 2}));
  QUENCH_RETURN_IF_ERROR(RequireScales(c));
  QUENCH_ASSIGN_OR_RETURN(const DataType wanted, OutputType(c));
  const DataType type = wanted == DataType::kUndefined ? c.input(1).dtype : wanted;
  if (!Contains(kScaleTypes, type)) {
    return c.Error(fmt::format("output_dtype is {}, DequantizeLinear gives {}", DataTypeName(type),
                               ToString(kScaleTypes)));
  }
  c.SetOutput(0, type, c.input(0).dims);
  return absl::OkStatus();
}

// (x - zero point) * scale, the product in f32.
E Dequantise(std::span<const E> x) {
  const bool zero = x.size() > 2 && x[2].valid();
  if (IsFloat(x[0].type())) return (zero ? x[0] - x[2] : x[0]) * x[1];
  const E whole = Cast(x[0], DataType::kI32);
  const E offset = zero ? whole - Cast(x[2], DataType::kI32) : whole;
  return Cast(offset, DataType::kF32) * x[1];
}

absl::StatusOr<E> DequantizeLinearElement(const OpContext&, loops::Builder&, std::span<const E> x) {
  return Dequantise(x);
}

absl::Status LowerDequantizeLinear(LowerContext& c) {
  return LowerBlocked(c, [](std::span<const E> x) -> absl::StatusOr<E> { return Dequantise(x); });
}

}  // namespace

const OpDef& DequantizeLinearOp() {
  static const OpDef op = {
      .name = "DequantizeLinear",
      .summary = "low precision to floats: per tensor, per axis or per block",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 3,
      .attributes = {{"axis", AttributeSpec::kInt},
                     {"block_size", AttributeSpec::kInt},
                     {"output_dtype", AttributeSpec::kInt}},
      .axes = AxisRole::kAxisOfFirst,
      .infer = InferDequantizeLinear,
      .scalar = DequantizeLinearElement,
      .operand_axes = ScaleAxes,
      .lower = LowerDequantizeLinear,
  };
  return op;
}

}  // namespace quench::ops
