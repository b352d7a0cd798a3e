#include "common/ops/helpers.h"

namespace quench::ops {

E Softplus(E x) {
  const E one = ConstantLike(x, 1);
  const E small = Unary(UnaryOp::kExp, -Unary(UnaryOp::kAbs, x));
  const E sum = small + one;
  const E log = Select(sum == one, small, Unary(UnaryOp::kLog, sum) * (small / (sum - one)));
  return Max(x, ConstantLike(x, 0)) + log;
}

const OpDef& SoftplusOp() {
  static const OpDef op = {
      .name = "Softplus",
      .summary = "log(1 + exp(x)), without overflow",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Softplus(x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
