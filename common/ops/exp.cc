#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& ExpOp() {
  static const OpDef op = {
      .name = "Exp",
      .summary = "e to the power of x",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kExp, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
