#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& EluOp() {
  static const OpDef op = {
      .name = "Elu",
      .summary = "x, below zero alpha * (exp(x) - 1)",
      .kind = OpKind::kPointwise,
      .attributes = {{"alpha", AttributeSpec::kFloat}},
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext& c, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        const E curve = (Unary(UnaryOp::kExp, x[0]) - 1.0) * c.node().Float("alpha", 1.0);
        return Select(x[0] < ConstantLike(x[0], 0), curve, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
