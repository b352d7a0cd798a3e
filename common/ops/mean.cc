#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& MeanOp() {
  static const OpDef op = {
      .name = "Mean",
      .summary = "mean of the inputs, broadcast",
      .kind = OpKind::kPointwise,
      .max_inputs = -1,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        const E sum = Combined(x, [](E a, E b) { return a + b; });
        return sum / static_cast<double>(x.size());
      },
  };
  return op;
}

}  // namespace quench::ops
