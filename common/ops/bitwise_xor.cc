#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& BitwiseXorOp() {
  static const OpDef op = {
      .name = "BitwiseXor",
      .summary = "exclusive or of the bits, broadcast",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .infer = [](InferContext& c) { return InferElementwise(c, kIntTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Binary(BinaryOp::kXor, x[0], x[1]);
      },
  };
  return op;
}

}  // namespace quench::ops
