#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& EqualOp() {
  static const OpDef op = {
      .name = "Equal",
      .summary = "a == b, broadcast",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .infer = [](InferContext& c) -> absl::Status {
        QUENCH_RETURN_IF_ERROR(InferComparison(c, kNumericTypes | kBoolType));
        InferElements(c, [](SymbolTable& s, Dim a, Dim b) -> std::optional<Dim> {
          if (a == b) return Dim(1);
          const bool apart =
              ProvablyLess(s, a, b).value_or(false) || ProvablyLess(s, b, a).value_or(false);
          return apart ? std::optional(Dim(0)) : std::nullopt;
        });
        return absl::OkStatus();
      },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return x[0] == x[1];
      },
  };
  return op;
}

}  // namespace quench::ops
