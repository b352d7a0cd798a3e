#include "common/ops/integer.h"
#include "common/ops/quantize_shape.h"

namespace quench::ops {
namespace {

// The type is that of the zero point, else output_dtype, else u8.
absl::StatusOr<DataType> TargetType(const InferContext& c) {
  QUENCH_ASSIGN_OR_RETURN(const DataType wanted, OutputType(c));
  if (c.has_input(2)) {
    const DataType type = c.input(2).dtype;
    if (wanted != DataType::kUndefined && wanted != type) {
      return c.Error(fmt::format("output_dtype is {}, the zero point is {}", DataTypeName(wanted),
                                 DataTypeName(type)));
    }
    return type;
  }
  return wanted == DataType::kUndefined ? DataType::kU8 : wanted;
}

absl::Status InferQuantizeLinear(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kScaleTypes | TypeSet({DataType::kI32})));
  QUENCH_RETURN_IF_ERROR(RequireScales(c));
  QUENCH_ASSIGN_OR_RETURN(const DataType type, TargetType(c));
  if (!Contains(kQuantizedTypes, type)) {
    return c.Error(fmt::format("cannot quantise to {}, QuantizeLinear gives {}", DataTypeName(type),
                               ToString(kQuantizedTypes)));
  }
  const int64_t precision = c.node().Int("precision", 0);
  if (precision != 0 && precision != static_cast<int64_t>(DataType::kF32)) {
    return c.UnsupportedError("precision other than f32 is not supported");
  }
  c.SetOutput(0, type, c.input(0).dims);
  return absl::OkStatus();
}

// clamp(rne(x / scale) + zero point), the division in f32.
E Quantise(std::span<const E> x, const OpContext& c) {
  const DataType type = c.output(0).dtype;
  const E scaled = Cast(x[0], DataType::kF32) / x[1];
  const E zero = x.size() > 2 ? x[2] : E();
  if (!IsFloat(type)) return RoundToInteger(scaled, zero, type);
  const E moved = zero.valid() ? scaled + zero : scaled;
  if (!Contains(kFloat8Types, type)) return moved;
  return ToFloat8(moved, type, c.node().Int("saturate", 1) != 0);
}

absl::StatusOr<E> QuantizeLinearElement(const OpContext& c, loops::Builder&, std::span<const E> x) {
  return Quantise(x, c);
}

absl::Status LowerQuantizeLinear(LowerContext& c) {
  return LowerBlocked(c, [&](std::span<const E> x) -> absl::StatusOr<E> { return Quantise(x, c); });
}

}  // namespace

const OpDef& QuantizeLinearOp() {
  static const OpDef op = {
      .name = "QuantizeLinear",
      .summary = "floats to low precision: per tensor, per axis or per block",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 3,
      .attributes = {{"axis", AttributeSpec::kInt},
                     {"block_size", AttributeSpec::kInt},
                     {"output_dtype", AttributeSpec::kInt},
                     {"precision", AttributeSpec::kInt},
                     {"saturate", AttributeSpec::kInt}},
      .axes = AxisRole::kAxisOfFirst,
      .infer = InferQuantizeLinear,
      .scalar = QuantizeLinearElement,
      .operand_axes = ScaleAxes,
      .lower = LowerQuantizeLinear,
  };
  return op;
}

}  // namespace quench::ops
