#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& SeluOp() {
  static const OpDef op = {
      .name = "Selu",
      .summary = "gamma * (x, below zero alpha * (exp(x) - 1))",
      .kind = OpKind::kPointwise,
      .attributes = {{"alpha", AttributeSpec::kFloat}, {"gamma", AttributeSpec::kFloat}},
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext& c, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        const double alpha = c.node().Float("alpha", 1.67326319217681884765625);
        const double gamma = c.node().Float("gamma", 1.05070102214813232421875);
        const E curve = (Unary(UnaryOp::kExp, x[0]) - 1.0) * alpha;
        return Select(x[0] > ConstantLike(x[0], 0), x[0], curve) * gamma;
      },
  };
  return op;
}

}  // namespace quench::ops
