#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status InferReduceProd(InferContext& ctx) {
  return InferReduce(ctx, kNumericTypes, [](SymbolTable& s, Dim a, Dim b) { return s.Mul(a, b); });
}

absl::Status LowerReduceProd(LowerContext& ctx) {
  return LowerReduce(
      ctx, [](const ReducedElement& x) { return x.Combine(BinaryOp::kMul, x.b.F(1, x.type)); });
}

}  // namespace

const OpDef& ReduceProdOp() {
  static const OpDef op =
      ReduceDef("ReduceProd", "product over axes", InferReduceProd, LowerReduceProd);
  return op;
}

}  // namespace quench::ops
