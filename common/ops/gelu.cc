#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferGelu(InferContext& c) {
  const std::string mode = c.node().String("approximate", "none");
  if (mode != "none" && mode != "tanh") {
    return c.Error(fmt::format("approximate is `{}`, Gelu takes none or tanh", mode));
  }
  return InferElementwise(c, kFloatTypes);
}

absl::StatusOr<E> GeluElement(const OpContext& c, loops::Builder&, std::span<const E> operands) {
  const E x = operands[0];
  if (c.node().String("approximate", "none") == "tanh") {
    constexpr double kSqrtTwoOverPi = 0.7978845608028654;
    const E inner = (x + x * x * x * 0.044715) * kSqrtTwoOverPi;
    return x * 0.5 * (Unary(UnaryOp::kTanh, inner) + 1.0);
  }
  constexpr double kSqrtHalf = 0.7071067811865476;
  return x * 0.5 * (Unary(UnaryOp::kErf, x * kSqrtHalf) + 1.0);
}

}  // namespace

const OpDef& GeluOp() {
  static const OpDef op = {
      .name = "Gelu",
      .summary = "x * the normal distribution function of x, exact or by tanh",
      .kind = OpKind::kPointwise,
      .attributes = {{"approximate", AttributeSpec::kString}},
      .quant = QuantRole::kCompute,
      .infer = InferGelu,
      .scalar = GeluElement,
  };
  return op;
}

}  // namespace quench::ops
