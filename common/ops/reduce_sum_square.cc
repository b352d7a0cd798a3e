#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status InferReduceSumSquare(InferContext& ctx) { return InferReduce(ctx, kNumericTypes); }

absl::Status LowerReduceSumSquare(LowerContext& ctx) {
  return LowerReduce(
      ctx, [](const ReducedElement& x) { return x.Sum([](E value) { return value * value; }); });
}

}  // namespace

const OpDef& ReduceSumSquareOp() {
  static const OpDef op = ReduceDef("ReduceSumSquare", "sum of squares over axes",
                                    InferReduceSumSquare, LowerReduceSumSquare);
  return op;
}

}  // namespace quench::ops
