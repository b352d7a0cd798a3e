#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferIsNaN(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kFloatTypes | kFloat8Types));
  c.SetOutput(0, DataType::kBool, c.input(0).dims);
  return absl::OkStatus();
}

}  // namespace

const OpDef& IsNaNOp() {
  static const OpDef op = {
      .name = "IsNaN",
      .summary = "whether x is NaN",
      .kind = OpKind::kPointwise,
      .infer = InferIsNaN,
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Unary(UnaryOp::kIsNan, x[0]);
      },
  };
  return op;
}

}  // namespace quench::ops
