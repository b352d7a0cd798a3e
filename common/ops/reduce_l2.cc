#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status InferReduceL2(InferContext& ctx) { return InferReduce(ctx, kNumericTypes); }

absl::Status LowerReduceL2(LowerContext& ctx) {
  return LowerReduce(ctx, [](const ReducedElement& x) {
    const E sum = x.Sum([](E value) { return value * value; });
    if (IsFloat(x.type)) return Unary(UnaryOp::kSqrt, sum);
    return Cast(Unary(UnaryOp::kSqrt, Cast(sum, DataType::kF64)), x.type);
  });
}

}  // namespace

const OpDef& ReduceL2Op() {
  static const OpDef op = ReduceDef("ReduceL2", "square root of the sum of squares over axes",
                                    InferReduceL2, LowerReduceL2);
  return op;
}

}  // namespace quench::ops
