#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferCelu(InferContext& c) {
  if (c.node().Float("alpha", 1.0) == 0) return c.Error("alpha is 0, Celu divides by it");
  return InferElementwise(c, kFloatTypes);
}

}  // namespace

const OpDef& CeluOp() {
  static const OpDef op = {
      .name = "Celu",
      .summary = "max(0, x) + min(0, alpha * (exp(x / alpha) - 1))",
      .kind = OpKind::kPointwise,
      .attributes = {{"alpha", AttributeSpec::kFloat}},
      .quant = QuantRole::kCompute,
      .infer = InferCelu,
      .scalar = [](const OpContext& c, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        const double alpha = c.node().Float("alpha", 1.0);
        const E zero = ConstantLike(x[0], 0);
        const E curve = (Unary(UnaryOp::kExp, x[0] / alpha) - 1.0) * alpha;
        return Max(x[0], zero) + Min(curve, zero);
      },
  };
  return op;
}

}  // namespace quench::ops
