#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status InferReduceMin(InferContext& ctx) {
  return InferReduce(ctx, kNumericTypes | kBoolType,
                     [](SymbolTable& s, Dim a, Dim b) { return s.Min(a, b); });
}

absl::Status LowerReduceMin(LowerContext& ctx) {
  return LowerReduce(ctx, [](const ReducedElement& x) {
    const bool boolean = x.type == DataType::kBool;
    return x.Combine(boolean ? BinaryOp::kAnd : BinaryOp::kMin, HighestOf(x.b, x.type));
  });
}

}  // namespace

const OpDef& ReduceMinOp() {
  static const OpDef op =
      ReduceDef("ReduceMin", "minimum over axes", InferReduceMin, LowerReduceMin);
  return op;
}

}  // namespace quench::ops
