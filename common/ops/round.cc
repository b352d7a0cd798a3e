#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& RoundOp() {
  static const OpDef op = {
      .name = "Round",
      .summary = "nearest integer, halves to even",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kRoundEven, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
