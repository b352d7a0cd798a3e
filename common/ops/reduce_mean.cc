#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status Infer(InferContext& ctx) { return InferReduce(ctx, kNumericTypes); }

absl::Status Lower(LowerContext& ctx) {
  return LowerReduce(ctx, [](const ReducedElement& x) { return x.Sum() / x.Count(); });
}

}  // namespace

const OpDef& ReduceMeanOp() {
  static const OpDef op = ReduceDef("ReduceMean", "mean over axes", Infer, Lower);
  return op;
}

}  // namespace quench::ops
