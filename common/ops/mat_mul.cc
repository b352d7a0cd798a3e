#include "common/ops/helpers.h"
#include "common/ops/matmul_shape.h"

namespace quench::ops {
namespace {

absl::Status InferMatMul(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c));
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, MatMulDims(c, 0, 1));
  c.SetOutput(0, c.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

}  // namespace

absl::Status LowerPlainMatMul(LowerContext& c) {
  LowerMatMul(c, 0, 1, [](LowerContext& op, const MatMulTerms& terms) {
    const DataType type = loops::ComputeType(op.output(0).dtype);
    op.b().Store(op.out(0), terms.index,
                 op.b().Reduce(BinaryOp::kAdd, op.b().F(0, type), terms.depth,
                               [&](E k) { return terms.a(k) * terms.b(k); }));
  });
  return absl::OkStatus();
}

const OpDef& MatMulOp() {
  static const OpDef op = {
      .name = "MatMul",
      .summary = "matrix product over the last two dims, batch dims broadcast (numpy.matmul)",
      .min_inputs = 2,
      .max_inputs = 2,
      .quant = QuantRole::kCompute,
      .infer = InferMatMul,
      .macs = [](const OpContext& c) { return MatMulMacs(c, 0, 1); },
      .lower = LowerPlainMatMul,
  };
  return op;
}

}  // namespace quench::ops
