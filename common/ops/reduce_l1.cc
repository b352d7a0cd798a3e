#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status Infer(InferContext& ctx) { return InferReduce(ctx, kNumericTypes); }

absl::Status Lower(LowerContext& ctx) {
  return LowerReduce(ctx, [](const ReducedElement& x) {
    return x.Sum([&](E value) { return IsUnsigned(x.type) ? value : Unary(UnaryOp::kAbs, value); });
  });
}

}  // namespace

const OpDef& ReduceL1Op() {
  static const OpDef op = ReduceDef("ReduceL1", "sum of absolute values over axes", Infer, Lower);
  return op;
}

}  // namespace quench::ops
