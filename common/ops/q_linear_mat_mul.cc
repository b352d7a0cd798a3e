#include "common/ops/integer_matmul.h"

namespace quench::ops {
namespace {

constexpr DataTypes kScales = TypeSet({DataType::kF32, DataType::kF16, DataType::kBF16});

// Inputs: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point.
absl::Status InferQLinearMatMul(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireByte(c, {0, 2, 3, 5, 7}));
  for (const int scale : {1, 4, 6}) QUENCH_RETURN_IF_ERROR(RequireType(c, scale, kScales));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {0, 2}));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {3, 5}));
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, MatMulDims(c, 0, 3));
  for (const int i : {1, 2}) QUENCH_RETURN_IF_ERROR(RequireMatrixParameter(c, i, 0, true));
  for (const int i : {4, 5}) QUENCH_RETURN_IF_ERROR(RequireMatrixParameter(c, i, 3, false));
  for (const int i : {6, 7}) QUENCH_RETURN_IF_ERROR(RequireParameter(c, i, 1));
  c.SetOutput(0, c.input(7).dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerQLinearMatMul(LowerContext& c) {
  const MatrixParameter a_scale(c, 1, true), a_zero(c, 2, true);
  const MatrixParameter b_scale(c, 4, false), b_zero(c, 5, false);
  LowerMatMul(c, 0, 3, [&](LowerContext& op, const MatMulTerms& terms) {
    const E sum = MatMulAccumulator(op, terms, a_zero, b_zero);
    const E zero = op.b().I(0);
    const E scale = a_scale.At(terms) * b_scale.At(terms) / Parameter(op, 6, zero);
    op.b().Store(op.out(0), terms.index,
                 Requantise(sum, scale, Parameter(op, 7, zero), op.output(0).dtype));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& QLinearMatMulOp() {
  static const OpDef op = {
      .name = "QLinearMatMul",
      .summary = "matrix product of 8-bit integers with scales and zero points, requantised",
      .min_inputs = 8,
      .max_inputs = 8,
      .infer = InferQLinearMatMul,
      .macs = [](const OpContext& c) { return MatMulMacs(c, 0, 3); },
      .lower = LowerQLinearMatMul,
  };
  return op;
}

}  // namespace quench::ops
