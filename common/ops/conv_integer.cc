#include "common/ops/conv_shape.h"
#include "common/ops/integer.h"

namespace quench::ops {
namespace {

absl::Status InferConvInteger(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireByte(c, {0, 1, 2, 3}));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {0, 2}));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {1, 3}));
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, ConvDims(c, 0, 1));
  QUENCH_RETURN_IF_ERROR(RequireParameter(c, 2, 1));
  QUENCH_RETURN_IF_ERROR(RequireParameter(c, 3, dims[1]));
  c.SetOutput(0, DataType::kI32, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerConvInteger(LowerContext& c) {
  LowerConv(c, 0, 1, [](LowerContext& op, const ConvTerms& terms) {
    op.b().Store(op.out(0), terms.index, ConvAccumulator(op, terms, 2, 3));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& ConvIntegerOp() {
  static const OpDef op = {
      .name = "ConvInteger",
      .summary = "convolution of 8-bit integers minus their zero points, into i32",
      .min_inputs = 2,
      .max_inputs = 4,
      .attributes = ConvAttributes(),
      .work = WorkKind::kConvolution,
      .infer = InferConvInteger,
      .macs = [](const OpContext& c) { return ConvMacs(c, 1); },
      .lower = LowerConvInteger,
  };
  return op;
}

}  // namespace quench::ops
