#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

// Integers are shrunk as f64, because `lambd` and `bias` are floats.
absl::StatusOr<E> ShrinkElement(const OpContext& c, loops::Builder&, std::span<const E> operands) {
  const DataType type = operands[0].type();
  const E x = IsFloat(type) ? operands[0] : Cast(operands[0], DataType::kF64);
  const double lambd = c.node().Float("lambd", 0.5);
  const double bias = c.node().Float("bias", 0.0);
  const E above = Select(x > ConstantLike(x, lambd), x - bias, ConstantLike(x, 0));
  return Cast(Select(x < ConstantLike(x, -lambd), x + bias, above), type);
}

}  // namespace

const OpDef& ShrinkOp() {
  static const OpDef op = {
      .name = "Shrink",
      .summary = "x + bias below -lambd, x - bias above lambd, else 0",
      .kind = OpKind::kPointwise,
      .attributes = {{"lambd", AttributeSpec::kFloat}, {"bias", AttributeSpec::kFloat}},
      .quant = QuantRole::kCompute,
      .infer = [](InferContext& c) { return InferElementwise(c, kNumericTypes); },
      .scalar = ShrinkElement,
  };
  return op;
}

}  // namespace quench::ops
