#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status InferReduceSum(InferContext& ctx) {
  return InferReduce(ctx, kNumericTypes, [](SymbolTable& s, Dim a, Dim b) { return s.Add(a, b); });
}

absl::Status LowerReduceSum(LowerContext& ctx) {
  return LowerReduce(ctx, [](const ReducedElement& x) { return x.Sum(); });
}

}  // namespace

const OpDef& ReduceSumOp() {
  static const OpDef op = ReduceDef("ReduceSum", "sum over axes", InferReduceSum, LowerReduceSum);
  return op;
}

}  // namespace quench::ops
