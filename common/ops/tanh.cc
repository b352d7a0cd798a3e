#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& TanhOp() {
  static const OpDef op = {
      .name = "Tanh",
      .summary = "hyperbolic tangent",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kTanh, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
