#include "common/ops/pool_shape.h"

namespace quench::ops {
namespace {

absl::Status InferLpPool(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(NormOrder(c).status());
  return InferPool(c, kFloatTypes);
}

absl::Status LowerLpPool(LowerContext& c) {
  QUENCH_ASSIGN_OR_RETURN(const int64_t p, NormOrder(c));
  LowerPool(c, [p](LowerContext& op, const PoolWindow& window) {
    const DataType type = loops::ComputeType(op.input(0).dtype);
    const E sum = op.b().ReduceAll(
        BinaryOp::kAdd, op.b().F(0, type), window.extents,
        [&](std::span<const E> term) { return PowerOfAbs(op.in(0).At(window.at(term)), p); });
    op.b().Store(op.out(0), window.index, RootOf(sum, p));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& LpPoolOp() {
  static const OpDef op = {
      .name = "LpPool",
      .summary = "p-norm of each window",
      .attributes = WindowAttributes(
          /*pooling=*/true, {{"ceil_mode", AttributeSpec::kInt}, {"p", AttributeSpec::kInt}}),
      .work = WorkKind::kPooling,
      .infer = InferLpPool,
      .lower = LowerLpPool,
  };
  return op;
}

}  // namespace quench::ops
