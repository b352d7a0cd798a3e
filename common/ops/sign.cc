#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& SignOp() {
  static const OpDef op = {
      .name = "Sign",
      .summary = "-1, 0 or 1; NaN stays NaN",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kNumericTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        if (IsUnsigned(x[0].type())) return Min(x[0], ConstantLike(x[0], 1));
        const E zero = ConstantLike(x[0], 0);
        const E negative = Select(x[0] < zero, ConstantLike(x[0], -1), x[0]);
        return Select(x[0] > zero, ConstantLike(x[0], 1), negative);
      },
  };
  return op;
}

}  // namespace quench::ops
