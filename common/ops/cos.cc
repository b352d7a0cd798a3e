#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& CosOp() {
  static const OpDef op = {
      .name = "Cos",
      .summary = "cosine, element by element",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kCos, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
