#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferMod(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(InferElementwise(c, kNumericTypes));
  if (IsFloat(c.input(0).dtype) && c.node().Int("fmod", 0) == 0) {
    return c.Error("fmod is 0, floats need fmod = 1");
  }
  InferElements(c, [](SymbolTable& symbols, Dim a, Dim b) -> std::optional<Dim> {
    if (!b.is_static() || b.value() <= 0 || symbols.BoundsOf(a).min < 0) return std::nullopt;
    return symbols.Mod(a, b);
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& ModOp() {
  static const OpDef op = {
      .name = "Mod",
      .summary = "remainder with the sign of the divisor, or of the dividend when fmod = 1",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .attributes = {{"fmod", AttributeSpec::kInt}},
      .infer = InferMod,
      .scalar = [](const OpContext& c, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return c.node().Int("fmod", 0) != 0 ? x[0] % x[1] : FloorMod(x[0], x[1]);
      },
  };
  return op;
}

}  // namespace quench::ops
