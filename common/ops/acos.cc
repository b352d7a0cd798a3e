#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& AcosOp() {
  static const OpDef op = {
      .name = "Acos",
      .summary = "arc cosine, element by element",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kAcos, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
