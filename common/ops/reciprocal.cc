#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& ReciprocalOp() {
  static const OpDef op = {
      .name = "Reciprocal",
      .summary = "1 / x",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return ConstantLike(x[0], 1) / x[0];
      },
  };
  return op;
}

}  // namespace quench::ops
