#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status Infer(InferContext& ctx) { return InferReduce(ctx, kNumericTypes); }

absl::Status Lower(LowerContext& ctx) {
  return LowerReduce(
      ctx, [](const ReducedElement& x) { return x.Sum([](E value) { return value * value; }); });
}

}  // namespace

const OpDef& ReduceSumSquareOp() {
  static const OpDef op = ReduceDef("ReduceSumSquare", "sum of squares over axes", Infer, Lower);
  return op;
}

}  // namespace quench::ops
