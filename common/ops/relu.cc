#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& ReluOp() {
  static const OpDef op = {
      .name = "Relu",
      .summary = "max(x, 0), element by element",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kPassThrough,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes | kSignedTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Max(x[0], ConstantLike(x[0], 0));
      },
  };
  return op;
}

}  // namespace quench::ops
