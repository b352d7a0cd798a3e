#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& OrOp() {
  static const OpDef op = {
      .name = "Or",
      .summary = "logical or, broadcast",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .infer = [](InferContext& c) -> absl::Status {
        QUENCH_RETURN_IF_ERROR(InferElementwise(c, kBoolType));
        InferElements(c, [](SymbolTable&, Dim a, Dim b) -> std::optional<Dim> {
          if (!a.is_static() || !b.is_static()) return std::nullopt;
          return Dim(a.value() != 0 || b.value() != 0 ? 1 : 0);
        });
        return absl::OkStatus();
      },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return x[0] || x[1];
      },
  };
  return op;
}

}  // namespace quench::ops
