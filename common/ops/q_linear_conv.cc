#include "common/ops/conv_shape.h"
#include "common/ops/integer.h"

namespace quench::ops {
namespace {

constexpr DataTypes kF32 = TypeSet({DataType::kF32});

// Inputs: x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias.
absl::Status InferQLinearConv(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireByte(c, {0, 2, 3, 5, 7}));
  for (const int scale : {1, 4, 6}) QUENCH_RETURN_IF_ERROR(RequireType(c, scale, kF32));
  QUENCH_RETURN_IF_ERROR(RequireType(c, 8, TypeSet({DataType::kI32})));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {0, 2}));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {3, 5}));
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, ConvDims(c, 0, 3));
  for (const int single : {1, 2, 6, 7}) QUENCH_RETURN_IF_ERROR(RequireParameter(c, single, 1));
  for (const int channel : {4, 5, 8}) QUENCH_RETURN_IF_ERROR(RequireParameter(c, channel, dims[1]));
  c.SetOutput(0, c.input(7).dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerQLinearConv(LowerContext& c) {
  LowerConv(c, 0, 3, [](LowerContext& op, const ConvTerms& terms) {
    const E channel = terms.index[1];
    E sum = ConvAccumulator(op, terms, 2, 5);
    if (op.has_input(8)) sum = sum + Parameter(op, 8, channel);
    const E scale =
        Parameter(op, 1, channel) * Parameter(op, 4, channel) / Parameter(op, 6, channel);
    op.b().Store(op.out(0), terms.index,
                 Requantise(sum, scale, Parameter(op, 7, channel), op.output(0).dtype));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& QLinearConvOp() {
  static const OpDef op = {
      .name = "QLinearConv",
      .summary = "convolution of 8-bit integers with scales and zero points, requantised",
      .min_inputs = 8,
      .max_inputs = 9,
      .attributes = ConvAttributes(),
      .work = WorkKind::kConvolution,
      .bias = 8,
      .infer = InferQLinearConv,
      .macs = [](const OpContext& c) { return ConvMacs(c, 3); },
      .lower = LowerQLinearConv,
  };
  return op;
}

}  // namespace quench::ops
