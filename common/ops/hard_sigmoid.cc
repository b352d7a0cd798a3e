#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& HardSigmoidOp() {
  static const OpDef op = {
      .name = "HardSigmoid",
      .summary = "max(0, min(1, alpha * x + beta))",
      .kind = OpKind::kPointwise,
      .attributes = {{"alpha", AttributeSpec::kFloat}, {"beta", AttributeSpec::kFloat}},
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext& c, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        const E line = x[0] * c.node().Float("alpha", 0.2) + c.node().Float("beta", 0.5);
        return Max(ConstantLike(line, 0), Min(ConstantLike(line, 1), line));
      },
  };
  return op;
}

}  // namespace quench::ops
