#include "common/ops/integer_matmul.h"

namespace quench::ops {
namespace {

absl::Status InferMatMulInteger(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireByte(c, {0, 1, 2, 3}));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {0, 2}));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {1, 3}));
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, MatMulDims(c, 0, 1));
  QUENCH_RETURN_IF_ERROR(RequireMatrixParameter(c, 2, 0, /*rows=*/true));
  QUENCH_RETURN_IF_ERROR(RequireMatrixParameter(c, 3, 1, /*rows=*/false));
  c.SetOutput(0, DataType::kI32, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerMatMulInteger(LowerContext& c) {
  const MatrixParameter a_zero(c, 2, /*rows=*/true);
  const MatrixParameter b_zero(c, 3, /*rows=*/false);
  LowerMatMul(c, 0, 1, [&](LowerContext& op, const MatMulTerms& terms) {
    op.b().Store(op.out(0), terms.index, MatMulAccumulator(op, terms, a_zero, b_zero));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& MatMulIntegerOp() {
  static const OpDef op = {
      .name = "MatMulInteger",
      .summary = "matrix product of 8-bit integers minus their zero points, into i32",
      .min_inputs = 2,
      .max_inputs = 4,
      .infer = InferMatMulInteger,
      .macs = [](const OpContext& c) { return MatMulMacs(c, 0, 1); },
      .lower = LowerMatMulInteger,
  };
  return op;
}

}  // namespace quench::ops
