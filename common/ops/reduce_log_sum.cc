#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status InferReduceLogSum(InferContext& ctx) { return InferReduce(ctx, kFloatTypes); }

absl::Status LowerReduceLogSum(LowerContext& ctx) {
  return LowerReduce(ctx, [](const ReducedElement& x) { return Unary(UnaryOp::kLog, x.Sum()); });
}

}  // namespace

const OpDef& ReduceLogSumOp() {
  static const OpDef op = ReduceDef("ReduceLogSum", "logarithm of the sum over axes",
                                    InferReduceLogSum, LowerReduceLogSum);
  return op;
}

}  // namespace quench::ops
