#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& CeilOp() {
  static const OpDef op = {
      .name = "Ceil",
      .summary = "least integer not below x",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kCeil, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
