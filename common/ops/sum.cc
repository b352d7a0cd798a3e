#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& SumOp() {
  static const OpDef op = {
      .name = "Sum",
      .summary = "sum of the inputs, broadcast",
      .kind = OpKind::kPointwise,
      .max_inputs = -1,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Combined(x, [](E a, E b) { return a + b; });
      },
  };
  return op;
}

}  // namespace quench::ops
