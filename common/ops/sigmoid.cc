#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& SigmoidOp() {
  static const OpDef op = {
      .name = "Sigmoid",
      .summary = "1 / (1 + exp(-x))",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kLogistic, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
