#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& FloorOp() {
  static const OpDef op = {
      .name = "Floor",
      .summary = "greatest integer not above x",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kFloor, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
