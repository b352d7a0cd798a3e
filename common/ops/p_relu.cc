#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferPRelu(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(InferElementwise(c, kNumericTypes));
  if (c.outputs()[0].rank() != c.input(0).rank()) {
    return c.Error(fmt::format("slope {} does not broadcast to x {}", ToString(c, c.input(1).dims),
                               ToString(c, c.input(0).dims)));
  }
  c.SetOutput(0, c.input(0));
  return absl::OkStatus();
}

}  // namespace

const OpDef& PReluOp() {
  static const OpDef op = {
      .name = "PRelu",
      .summary = "x, below zero slope * x; slope broadcasts to x",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .quant = QuantRole::kCompute,
      .infer = InferPRelu,
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Select(x[0] < ConstantLike(x[0], 0), x[0] * x[1], x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
