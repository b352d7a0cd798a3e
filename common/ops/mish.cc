#include "common/ops/helpers.h"

namespace quench::ops {

const OpDef& MishOp() {
  static const OpDef op = {
      .name = "Mish",
      .summary = "x * tanh(log(1 + exp(x)))",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kFloatTypes); },
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return x[0] * Unary(UnaryOp::kTanh, Softplus(x[0]));
      },
  };
  return op;
}

}  // namespace quench::ops
