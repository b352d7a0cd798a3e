#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& SoftplusOp() {
  static const OpDef op = {
      .name = "Softplus",
      .summary = "log(1 + exp(x)), without overflow",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        const E small = Unary(UnaryOp::kExp, -Unary(UnaryOp::kAbs, x[0]));
        return Max(x[0], ConstantLike(x[0], 0)) + Unary(UnaryOp::kLog, small + 1.0);
      },
  };
  return op;
}

}  // namespace quench::ops
