#include "common/ops/pool_shape.h"

namespace quench::ops {
namespace {

absl::Status InferGlobalLpPool(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(NormOrder(c).status());
  return InferGlobalPool(c, kFloatTypes);
}

absl::Status LowerGlobalLpPool(LowerContext& c) {
  QUENCH_ASSIGN_OR_RETURN(const int64_t p, NormOrder(c));
  return LowerGlobalPool(
      c, BinaryOp::kAdd, [p](E x) { return PowerOfAbs(x, p); },
      [p](E sum, E) { return RootOf(sum, p); });
}

}  // namespace

const OpDef& GlobalLpPoolOp() {
  static const OpDef op = {
      .name = "GlobalLpPool",
      .summary = "p-norm over all spatial dims",
      .attributes = {{"p", AttributeSpec::kInt}},
      .work = WorkKind::kPooling,
      .infer = InferGlobalLpPool,
      .lower = LowerGlobalLpPool,
  };
  return op;
}

}  // namespace quench::ops
