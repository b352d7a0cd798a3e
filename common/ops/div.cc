#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

// Truncation is flooring where the numerator cannot be negative.
std::optional<Dim> Quotient(SymbolTable& symbols, Dim a, Dim b) {
  if (!b.is_static() || b.value() <= 0) return std::nullopt;
  if (a.is_static()) return Dim(a.value() / b.value());
  if (symbols.BoundsOf(a).min < 0) return std::nullopt;
  return symbols.FloorDiv(a, b);
}

}  // namespace

const OpDef& DivOp() {
  static const OpDef op = {
      .name = "Div",
      .summary = "quotient of two tensors, broadcast; integers truncate",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .infer = [](InferContext& c) -> absl::Status {
        QUENCH_RETURN_IF_ERROR(InferElementwise(c, kNumericTypes));
        InferElements(c, Quotient);
        return absl::OkStatus();
      },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return x[0] / x[1];
      },
  };
  return op;
}

}  // namespace quench::ops
