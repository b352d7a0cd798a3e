#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& ThresholdedReluOp() {
  static const OpDef op = {
      .name = "ThresholdedRelu",
      .summary = "x where it is above alpha, else 0",
      .kind = OpKind::kPointwise,
      .attributes = {{"alpha", AttributeSpec::kFloat}},
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext& c, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Select(x[0] > ConstantLike(x[0], c.node().Float("alpha", 1.0)), x[0],
                      ConstantLike(x[0], 0));
      },
  };
  return op;
}

}  // namespace quench::ops
