#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& AcoshOp() {
  static const OpDef op = {
      .name = "Acosh",
      .summary = "inverse hyperbolic cosine, element by element",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kAcosh, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
