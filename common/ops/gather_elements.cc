#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferGatherElements(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  const Type& x = ctx.input(0);
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, x.rank(), x.rank()));
  QUENCH_RETURN_IF_ERROR(ctx.Axis(ctx.node().Int("axis", 0), x.rank()).status());
  ctx.SetOutput(0, x.dtype, ctx.input(1).dims);
  return absl::OkStatus();
}

absl::Status LowerGatherElements(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B indices = ctx.in(1);
  const int axis = NormalAxis(ctx.node().Int("axis", 0), x.rank());
  const std::string what = fmt::format("node `{}`: an index of GatherElements", ctx.node().name);
  for (int a = 0; a < x.rank(); ++a) {
    if (a == axis ||
        ctx.input(0).dims[static_cast<size_t>(a)] == ctx.input(1).dims[static_cast<size_t>(a)])
      continue;
    b.Check(indices.dim(a) <= x.dim(a),
            fmt::format("node `{}`: axis {} of the indices is longer than the data's",
                        ctx.node().name, a));
  }
  b.ParallelForAll(DimsOf(indices), [&](std::span<const E> i) {
    const E index = CheckedIndex(b, indices.At(i), x.dim(axis), what);
    b.Store(ctx.out(0), i, x.At(Replaced(i, axis, index)));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& GatherElementsOp() {
  static const OpDef op = {.name = "GatherElements",
                           .summary = "picks one element per index along one axis",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .attributes = {{"axis", AttributeSpec::kInt}},
                           .quant = QuantRole::kPassThrough,
                           .infer = InferGatherElements,
                           .lower = LowerGatherElements};
  return op;
}

}  // namespace quench::ops
