#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& AbsOp() {
  static const OpDef op = {
      .name = "Abs",
      .summary = "absolute value",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kNumericTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return IsUnsigned(x[0].type()) ? x[0] : Unary(UnaryOp::kAbs, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
