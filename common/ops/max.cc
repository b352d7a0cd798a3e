#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& MaxOp() {
  static const OpDef op = {
      .name = "Max",
      .summary = "greatest of the inputs, broadcast",
      .kind = OpKind::kPointwise,
      .max_inputs = -1,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) -> absl::Status {
        QUENCH_RETURN_IF_ERROR(InferElementwise(c, kNumericTypes));
        InferElements(c, [](SymbolTable& s, Dim a, Dim b) { return std::optional(s.Max(a, b)); });
        return absl::OkStatus();
      },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Combined(x, [](E a, E b) { return Max(a, b); });
      },
  };
  return op;
}

}  // namespace quench::ops
