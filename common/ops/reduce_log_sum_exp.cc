#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status InferReduceLogSumExp(InferContext& ctx) { return InferReduce(ctx, kFloatTypes); }

absl::Status LowerReduceLogSumExp(LowerContext& ctx) {
  return LowerReduce(ctx, [](const ReducedElement& x) {
    // The largest element is taken out, so that no exponential overflows; an infinite one is left
    // in.
    Builder& b = x.b;
    const E largest = b.Let(x.Combine(BinaryOp::kMax, LowestOf(b, x.type)), "largest");
    const E shift =
        b.Let(Select(Unary(UnaryOp::kIsInf, largest), b.F(0, x.type), largest), "shift");
    const E sum = x.Sum([&](E value) { return Unary(UnaryOp::kExp, value - shift); });
    return Unary(UnaryOp::kLog, sum) + shift;
  });
}

}  // namespace

const OpDef& ReduceLogSumExpOp() {
  static const OpDef op =
      ReduceDef("ReduceLogSumExp", "logarithm of the sum of exponentials over axes",
                InferReduceLogSumExp, LowerReduceLogSumExp);
  return op;
}

}  // namespace quench::ops
