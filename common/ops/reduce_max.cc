#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status InferReduceMax(InferContext& ctx) {
  return InferReduce(ctx, kNumericTypes | kBoolType,
                     [](SymbolTable& s, Dim a, Dim b) { return s.Max(a, b); });
}

absl::Status LowerReduceMax(LowerContext& ctx) {
  return LowerReduce(ctx, [](const ReducedElement& x) {
    const bool boolean = x.type == DataType::kBool;
    return x.Combine(boolean ? BinaryOp::kOr : BinaryOp::kMax, LowestOf(x.b, x.type));
  });
}

}  // namespace

const OpDef& ReduceMaxOp() {
  static const OpDef op =
      ReduceDef("ReduceMax", "maximum over axes", InferReduceMax, LowerReduceMax);
  return op;
}

}  // namespace quench::ops
