#include "common/ops/conv_shape.h"

namespace quench::ops {
namespace {

absl::Status InferConv(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c));
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, ConvDims(c, 0, 1));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 2, 1, 1));
  if (c.has_input(2)) {
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(c, c.input(2).dims[0], dims[1], "sizes of the bias and output channels"));
  }
  c.SetOutput(0, c.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerConvNode(LowerContext& c) {
  LowerConv(c, 0, 1, [](LowerContext& op, const ConvTerms& terms) {
    const DataType type = loops::ComputeType(op.output(0).dtype);
    E value =
        op.b().ReduceAll(BinaryOp::kAdd, op.b().F(0, type), terms.extents,
                         [&](std::span<const E> term) { return terms.x(term) * terms.w(term); });
    if (op.has_input(2)) value = value + op.in(2).At({terms.index[1]});
    op.b().Store(op.out(0), terms.index, value);
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& ConvOp() {
  static const OpDef op = {
      .name = "Conv",
      .summary = "convolution over N x C x spatial dims, grouped, dilated, padded",
      .min_inputs = 2,
      .max_inputs = 3,
      .attributes = ConvAttributes(),
      .quant = QuantRole::kCompute,
      .work = WorkKind::kConvolution,
      .bias = 2,
      .infer = InferConv,
      .macs = [](const OpContext& c) { return ConvMacs(c, 1); },
      .lower = LowerConvNode,
  };
  return op;
}

}  // namespace quench::ops
