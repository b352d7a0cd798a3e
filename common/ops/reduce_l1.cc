#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status InferReduceL1(InferContext& ctx) { return InferReduce(ctx, kNumericTypes); }

absl::Status LowerReduceL1(LowerContext& ctx) {
  return LowerReduce(ctx, [](const ReducedElement& x) {
    return x.Sum([&](E value) { return IsUnsigned(x.type) ? value : Unary(UnaryOp::kAbs, value); });
  });
}

}  // namespace

const OpDef& ReduceL1Op() {
  static const OpDef op =
      ReduceDef("ReduceL1", "sum of absolute values over axes", InferReduceL1, LowerReduceL1);
  return op;
}

}  // namespace quench::ops
