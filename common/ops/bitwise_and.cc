#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& BitwiseAndOp() {
  static const OpDef op = {
      .name = "BitwiseAnd",
      .summary = "and of the bits, broadcast",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .infer = [](InferContext& c) { return InferElementwise(c, kIntTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Binary(BinaryOp::kAnd, x[0], x[1]);
      },
  };
  return op;
}

}  // namespace quench::ops
