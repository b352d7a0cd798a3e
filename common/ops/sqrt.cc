#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& SqrtOp() {
  static const OpDef op = {
      .name = "Sqrt",
      .summary = "square root",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kSqrt, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
