#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& BitwiseNotOp() {
  static const OpDef op = {
      .name = "BitwiseNot",
      .summary = "every bit inverted",
      .kind = OpKind::kPointwise,
      .infer = [](InferContext& c) { return InferElementwise(c, kIntTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kNot, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
