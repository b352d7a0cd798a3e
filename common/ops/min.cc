#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& MinOp() {
  static const OpDef op = {
      .name = "Min",
      .summary = "least of the inputs, broadcast",
      .kind = OpKind::kPointwise,
      .max_inputs = -1,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) -> absl::Status {
        QUENCH_RETURN_IF_ERROR(InferElementwise(c, kNumericTypes));
        InferElements(c, [](SymbolTable& s, Dim a, Dim b) { return std::optional(s.Min(a, b)); });
        return absl::OkStatus();
      },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Combined(x, [](E a, E b) { return Min(a, b); });
      },
  };
  return op;
}

}  // namespace quench::ops
