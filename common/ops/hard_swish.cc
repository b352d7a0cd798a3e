#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& HardSwishOp() {
  static const OpDef op = {
      .name = "HardSwish",
      .summary = "x * max(0, min(1, x / 6 + 0.5))",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        const E line = x[0] * (1.0 / 6.0) + 0.5;
        return x[0] * Max(ConstantLike(line, 0), Min(ConstantLike(line, 1), line));
      },
  };
  return op;
}

}  // namespace quench::ops
