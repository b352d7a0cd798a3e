#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status InferReduceMean(InferContext& ctx) { return InferReduce(ctx, kNumericTypes); }

absl::Status LowerReduceMean(LowerContext& ctx) {
  return LowerReduce(ctx, [](const ReducedElement& x) { return x.Sum() / x.Count(); });
}

}  // namespace

const OpDef& ReduceMeanOp() {
  static const OpDef op =
      ReduceDef("ReduceMean", "mean over axes", InferReduceMean, LowerReduceMean);
  return op;
}

}  // namespace quench::ops
