#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferPow(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kFloatTypes | kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(c, 1, kNumericTypes));
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, BroadcastInputs(c));
  c.SetOutput(0, c.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

// A scalar constant exponent, or nullopt.
std::optional<double> Exponent(const OpContext& c) {
  const Tensor* exponent = c.constant(1);
  if (exponent == nullptr || exponent->size() != 1) return std::nullopt;
  return exponent->FloatAt(0);
}

absl::StatusOr<E> PowElement(const OpContext& c, loops::Builder&, std::span<const E> operands) {
  const E x = operands[0];
  const DataType type = x.type();
  if (IsFloat(type)) {
    // The exponents of real networks, cheap and exact to the last bit or two.
    const std::optional<double> exponent = Exponent(c);
    if (exponent == 1.0) return x;
    if (exponent == 2.0) return x * x;
    if (exponent == 3.0) return x * x * x;
    if (exponent == 0.5) return Unary(UnaryOp::kSqrt, x);
    if (exponent == -1.0) return ConstantLike(x, 1) / x;
    return Pow(x, Cast(operands[1], type));
  }
  if (IsFloat(operands[1].type())) {
    return Cast(Pow(Cast(x, DataType::kF64), Cast(operands[1], DataType::kF64)), type);
  }
  return Pow(x, Cast(operands[1], type));
}

}  // namespace

const OpDef& PowOp() {
  static const OpDef op = {
      .name = "Pow",
      .summary = "x to the power of y, in the type of x",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .infer = InferPow,
      .scalar = PowElement,
  };
  return op;
}

}  // namespace quench::ops
