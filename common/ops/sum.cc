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
        E result = x[0];
        for (const E next : x.subspan(1)) result = result + next;
        return result;
      },
  };
  return op;
}

}  // namespace quench::ops
