#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& CoshOp() {
  static const OpDef op = {
      .name = "Cosh",
      .summary = "hyperbolic cosine, element by element",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kCosh, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
