#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& SubOp() {
  static const OpDef op = {
      .name = "Sub",
      .summary = "difference of two tensors, broadcast",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) -> absl::Status {
        QUENCH_RETURN_IF_ERROR(InferElementwise(c, kNumericTypes));
        InferElements(c, [](SymbolTable& s, Dim a, Dim b) { return std::optional(s.Sub(a, b)); });
        return absl::OkStatus();
      },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return x[0] - x[1];
      },
  };
  return op;
}

}  // namespace quench::ops
