#include "common/ops/softmax_common.h"

namespace quench::ops {

absl::Status InferAlongAxis(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  QUENCH_RETURN_IF_ERROR(ctx.Axis(ctx.node().Int("axis", -1), ctx.input(0).rank()).status());
  ctx.SetOutput(0, ctx.input(0).dtype, ctx.input(0).dims);
  return absl::OkStatus();
}

void ForEachVector(LowerContext& ctx, bool scratch,
                   const std::function<void(const AxisVector&)>& body) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const int axis = NormalAxis(ctx.node().Int("axis", -1), x.rank());
  const DataType type = loops::ComputeType(x.dtype());
  B space;
  if (scratch) space = b.Scratch("row", type, {x.dim(axis)}, loops::ScratchScope::kIteration);
  ParallelRows(b, Erased(DimsOf(x), axis), [&](std::span<const E> row) {
    const std::vector<E> others(row.begin(), row.end());
    body({b, x.dim(axis), type, [&](E k) { return x.At(Inserted(others, axis, k)); },
          [&](E k, E value) { b.Store(ctx.out(0), Inserted(others, axis, k), value); }, space});
  });
}

OpDef AlongAxisDef(const std::string& name, const std::string& summary,
                   absl::Status (*lower)(LowerContext&)) {
  return {.name = name,
          .summary = summary,
          .attributes = {{"axis", AttributeSpec::kInt}},
          .axes = AxisRole::kAxis,
          .work = WorkKind::kElementwise,
          .infer = InferAlongAxis,
          .lower = lower};
}

}  // namespace quench::ops
