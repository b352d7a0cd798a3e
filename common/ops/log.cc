#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& LogOp() {
  static const OpDef op = {
      .name = "Log",
      .summary = "natural logarithm",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kLog, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
