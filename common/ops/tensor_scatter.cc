#include "common/base/status.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

enum ScatterInput { kCache, kUpdate, kPlaces };

// The axis of the steps.
int64_t AxisOf(const OpContext& ctx) { return ctx.node().Int("axis", -2); }

bool IsCircular(const OpContext& ctx) { return ctx.node().String("mode", "linear") == "circular"; }

absl::Status InferTensorScatter(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {kCache, kUpdate}));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, kCache, 2));
  const Type& cache = ctx.input(kCache);
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, kUpdate, cache.rank(), cache.rank()));
  QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(AxisOf(ctx), cache.rank()));
  if (axis == 0) return ctx.Error("axis 0 is that of the batch, steps have another");
  const std::string mode = ctx.node().String("mode", "linear");
  if (mode != "linear" && mode != "circular")
    return ctx.Error(fmt::format("mode is `{}`, it is `linear` or `circular`", mode));
  for (int a = 0; a < cache.rank(); ++a) {
    const Dim own = cache.dims[static_cast<size_t>(a)];
    const Dim fresh = ctx.input(kUpdate).dims[static_cast<size_t>(a)];
    if (a != axis) {
      QUENCH_RETURN_IF_ERROR(
          RequireEqual(ctx, fresh, own, fmt::format("axis {} of the update and the cache", a)));
    } else if (own.is_static() && fresh.is_static() && fresh.value() > own.value()) {
      return ctx.Error(
          fmt::format("an update of {} steps, the cache has {}", fresh.value(), own.value()));
    }
  }
  if (ctx.has_input(kPlaces)) {
    QUENCH_RETURN_IF_ERROR(RequireType(ctx, kPlaces, TypeSet({DataType::kI64})));
    QUENCH_RETURN_IF_ERROR(RequireRank(ctx, kPlaces, 1, 1));
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, ctx.input(kPlaces).dims[0], cache.dims[0],
                                        "write indices and samples of the batch"));
  }
  ctx.SetOutput(0, cache.dtype, cache.dims);
  return absl::OkStatus();
}

absl::Status LowerTensorScatter(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B update = ctx.in(kUpdate);
  const B y = ctx.out(0);
  const int axis = NormalAxis(AxisOf(ctx), y.rank());
  for (int a = 0; a < y.rank(); ++a) {
    const auto at = static_cast<size_t>(a);
    if (a != axis)
      EnsureEqual(ctx, ctx.input(kUpdate).dims[at], ctx.input(kCache).dims[at],
                  fmt::format("axis {} of the update and the cache", a));
  }
  const E steps = update.dim(axis), room = y.dim(axis);
  if (ctx.has_input(kPlaces)) {
    EnsureEqual(ctx, ctx.input(kPlaces).dims[0], ctx.input(kCache).dims[0],
                "write indices and samples of the batch");
    // All of them before anything is written.
    b.For(y.dim(0), [&](E n) {
      const E first = b.Let(ctx.in(kPlaces).At({n}), "first");
      b.Check(first >= 0 && (IsCircular(ctx) ? first < room : first + steps <= room),
              fmt::format("node `{}`: a write index is out of range for the steps of the cache",
                          ctx.node().name));
    });
  }
  b.Check(steps <= room,
          fmt::format("node `{}`: the update has more steps than the cache", ctx.node().name));
  b.ParallelForAll(DimsOf(update), [&](std::span<const E> at) {
    E step = at[static_cast<size_t>(axis)];
    if (ctx.has_input(kPlaces)) step = ctx.in(kPlaces).At({at[0]}) + step;
    if (IsCircular(ctx)) step = Select(step >= room, step - room, step);
    b.Store(y, Replaced(at, axis, step), update.At(at));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& TensorScatterOp() {
  static const OpDef op = {
      .name = "TensorScatter",
      .summary = "writes steps into a cache, from an index of each sample on",
      .min_inputs = 2,
      .max_inputs = 3,
      .attributes = {{"axis", AttributeSpec::kInt}, {"mode", AttributeSpec::kString}},
      .infer = InferTensorScatter,
      .lower = LowerTensorScatter,
      .updates = true};
  return op;
}

}  // namespace quench::ops
