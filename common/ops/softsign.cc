#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& SoftsignOp() {
  static const OpDef op = {
      .name = "Softsign",
      .summary = "x / (1 + |x|)",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return x[0] / (Unary(UnaryOp::kAbs, x[0]) + 1.0);
      },
  };
  return op;
}

}  // namespace quench::ops
