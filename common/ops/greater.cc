#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& GreaterOp() {
  static const OpDef op = {
      .name = "Greater",
      .summary = "a > b, broadcast",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .infer = [](InferContext& c) -> absl::Status {
        QUENCH_RETURN_IF_ERROR(InferComparison(c, kNumericTypes));
        InferElements(c, [](SymbolTable& s, Dim a, Dim b) -> std::optional<Dim> {
          const std::optional<bool> less = ProvablyLess(s, b, a);
          return less ? std::optional(Dim(*less ? 1 : 0)) : std::nullopt;
        });
        return absl::OkStatus();
      },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return x[0] > x[1];
      },
  };
  return op;
}

}  // namespace quench::ops
