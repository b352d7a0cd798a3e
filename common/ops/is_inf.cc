#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferIsInf(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kFloatTypes | kFloat8Types));
  c.SetOutput(0, DataType::kBool, c.input(0).dims);
  return absl::OkStatus();
}

absl::StatusOr<E> IsInfElement(const OpContext& c, loops::Builder& b, std::span<const E> x) {
  const bool negative = c.node().Int("detect_negative", 1) != 0;
  const bool positive = c.node().Int("detect_positive", 1) != 0;
  const E infinite = Unary(UnaryOp::kIsInf, x[0]);
  const E zero = ConstantLike(x[0], 0);
  if (negative && positive) return infinite;
  if (negative) return infinite && x[0] < zero;
  if (positive) return infinite && x[0] > zero;
  return b.Bool(false);
}

}  // namespace

const OpDef& IsInfOp() {
  static const OpDef op = {
      .name = "IsInf",
      .summary = "whether x is infinite, of the signs asked for",
      .kind = OpKind::kPointwise,
      .attributes = {{"detect_negative", AttributeSpec::kInt},
                     {"detect_positive", AttributeSpec::kInt}},
      .infer = InferIsInf,
      .scalar = IsInfElement,
  };
  return op;
}

}  // namespace quench::ops
