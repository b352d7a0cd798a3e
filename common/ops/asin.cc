#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& AsinOp() {
  static const OpDef op = {
      .name = "Asin",
      .summary = "arc sine, element by element",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kAsin, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
