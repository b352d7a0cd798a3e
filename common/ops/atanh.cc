#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& AtanhOp() {
  static const OpDef op = {
      .name = "Atanh",
      .summary = "inverse hyperbolic tangent, element by element",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kAtanh, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
