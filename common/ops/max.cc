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
        E result = x[0];
        for (const E next : x.subspan(1)) result = Max(result, next);
        return result;
      },
  };
  return op;
}

}  // namespace quench::ops
