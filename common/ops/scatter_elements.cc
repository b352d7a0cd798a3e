#include "common/ops/scatter_common.h"

namespace quench::ops {
namespace {

absl::Status InferScatterElements(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {0, 2}));
  QUENCH_RETURN_IF_ERROR(ScatterReduction(ctx).status());
  const Type& x = ctx.input(0);
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, x.rank(), x.rank()));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 2, x.rank(), x.rank()));
  QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(ctx.node().Int("axis", 0), x.rank()));
  for (int a = 0; a < x.rank(); ++a) {
    const auto at = static_cast<size_t>(a);
    const Dim size = ctx.input(1).dims[at];
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, size, ctx.input(2).dims[at],
                                        fmt::format("axis {} of indices and updates", a)));
    if (a != axis && size.is_static() && x.dims[at].is_static() &&
        size.value() > x.dims[at].value()) {
      return ctx.Error(fmt::format("axis {} of the indices has size {}, the data has {}", a,
                                   size.value(), x.dims[at].value()));
    }
  }
  ctx.SetOutput(0, x.dtype, x.dims);
  return absl::OkStatus();
}

// Positions that differ in another axis than `axis` never meet, so only that axis is walked in
// order.
absl::Status LowerScatterElements(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::optional<BinaryOp> reduction, ScatterReduction(ctx));
  Builder& b = ctx.b();
  const B indices = ctx.in(1);
  const B y = ctx.out(0);
  const int axis = NormalAxis(ctx.node().Int("axis", 0), y.rank());
  const std::string what = fmt::format("node `{}`: an index of ScatterElements", ctx.node().name);
  for (int a = 0; a < y.rank(); ++a) {
    EnsureEqual(ctx, ctx.input(1).dims[static_cast<size_t>(a)],
                ctx.input(2).dims[static_cast<size_t>(a)],
                fmt::format("sizes of axis {} of indices and updates", a));
    if (a == axis ||
        ctx.input(0).dims[static_cast<size_t>(a)] == ctx.input(1).dims[static_cast<size_t>(a)])
      continue;
    b.Check(indices.dim(a) <= y.dim(a),
            fmt::format("node `{}`: axis {} of the indices is longer than the data's",
                        ctx.node().name, a));
  }
  b.ParallelForAll(Erased(DimsOf(indices), axis), [&](std::span<const E> others) {
    const std::vector<E> rest(others.begin(), others.end());
    b.For(indices.dim(axis), [&](E k) {
      const std::vector<E> at = Inserted(rest, axis, k);
      const E index = CheckedIndex(b, indices.At(at), y.dim(axis), what);
      ScatterStore(b, y, Inserted(rest, axis, index), reduction, ctx.in(2).At(at));
    });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& ScatterElementsOp() {
  static const OpDef op = {
      .name = "ScatterElements",
      .summary = "writes one element per index along one axis into a copy",
      .min_inputs = 3,
      .max_inputs = 3,
      .attributes = {{"axis", AttributeSpec::kInt}, {"reduction", AttributeSpec::kString}},
      .infer = InferScatterElements,
      .lower = LowerScatterElements,
      .updates = true};
  return op;
}

}  // namespace quench::ops
