#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& SinhOp() {
  static const OpDef op = {
      .name = "Sinh",
      .summary = "hyperbolic sine, element by element",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kSinh, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
