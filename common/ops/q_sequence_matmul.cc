#include "common/base/status.h"
#include "common/ops/helpers.h"
#include "common/ops/matmul_shape.h"

namespace quench::ops {
namespace {

// a [time, batch, k], b [k, n], lengths [batch]. Rows of the steps that no sequence reaches are
// unspecified: kernels need not compute them. The nest does.
absl::Status InferQSequenceMatmul(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c, {0, 1}));
  QUENCH_RETURN_IF_ERROR(RequireType(c, 2, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 0, 3, 3));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 1, 2, 2));
  QUENCH_RETURN_IF_ERROR(RequireRank(c, 2, 1, 1));
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(c, c.input(2).dims[0], c.input(0).dims[1], "lengths and samples of a batch"));
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, MatMulDims(c, 0, 1));
  c.SetOutput(0, c.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

}  // namespace

const OpDef& QSequenceMatmulOp() {
  static const OpDef op = {
      .name = "q.sequence_matmul",
      .summary = "MatMul of the steps of sequences, the rest of which nothing reads",
      .min_inputs = 3,
      .max_inputs = 3,
      .infer = InferQSequenceMatmul,
      .macs = [](const OpContext& c) { return MatMulMacs(c, 0, 1); },
      .lower = LowerPlainMatMul,
  };
  return op;
}

}  // namespace quench::ops
