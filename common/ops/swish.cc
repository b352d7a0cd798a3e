#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& SwishOp() {
  static const OpDef op = {
      .name = "Swish",
      .summary = "x * sigmoid(alpha * x)",
      .kind = OpKind::kPointwise,
      .attributes = {{"alpha", AttributeSpec::kFloat}},
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext& c, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return x[0] * Unary(UnaryOp::kLogistic, x[0] * c.node().Float("alpha", 1.0));
      },
  };
  return op;
}

}  // namespace quench::ops
