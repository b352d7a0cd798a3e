#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferTile(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1, 1));
  const Type& x = ctx.input(0);
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, ctx.input(1).dims[0], x.rank(), "number of repeats and rank of the input"));
  const auto repeats = ctx.elements(1);
  std::vector<Dim> dims;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    if (!repeats) {
      dims.push_back(ctx.RuntimeDim(axis, std::nullopt));
      continue;
    }
    const Dim repeat = (*repeats)[at];
    if (repeat.is_static() && repeat.value() < 0)
      return ctx.Error(fmt::format("axis {} is repeated {} times", axis, repeat.value()));
    dims.push_back(ctx.symbols().Mul(x.dims[at], repeat));
  }
  ctx.SetOutput(0, x.dtype, dims);
  const auto elements = ctx.elements(0);
  if (elements && x.rank() == 1 && dims[0].is_static() && dims[0].value() <= 1024) {
    std::vector<Dim> all;
    for (int64_t i = 0; i < dims[0].value(); ++i)
      all.push_back((*elements)[static_cast<size_t>(i) % elements->size()]);
    ctx.SetElements(0, std::move(all));
  }
  return absl::OkStatus();
}

absl::Status LowerSizesOfTile(LowerContext& ctx) {
  for (int axis = 0; axis < ctx.input(0).rank(); ++axis) {
    SetRuntimeDim(ctx, ctx.output(0).dims[static_cast<size_t>(axis)],
                  ctx.in(0).dim(axis) * Element(ctx, 1, axis));
  }
  return absl::OkStatus();
}

// Loops over (repeat, element) per repeated axis, so that indices need no division.
absl::Status LowerTile(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const auto repeats = ctx.elements(1);
  std::vector<E> extents;
  std::vector<bool> repeated;
  for (int axis = 0; axis < x.rank(); ++axis) {
    repeated.push_back(!repeats || !(*repeats)[static_cast<size_t>(axis)].is(1));
    if (repeated.back()) extents.push_back(b.Let(Element(ctx, 1, axis), "repeats"));
    extents.push_back(x.dim(axis));
  }
  b.ParallelForAll(extents, [&](std::span<const E> i) {
    std::vector<E> source;
    std::vector<E> target;
    size_t next = 0;
    for (int axis = 0; axis < x.rank(); ++axis) {
      const bool again = repeated[static_cast<size_t>(axis)];
      const E round = again ? i[next++] : E();
      source.push_back(i[next++]);
      target.push_back(again ? round * x.dim(axis) + source.back() : source.back());
    }
    b.Store(ctx.out(0), target, x.At(source));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& TileOp() {
  static const OpDef op = {.name = "Tile",
                           .summary = "repeats a tensor along its axes",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .quant = QuantRole::kPassThrough,
                           .infer = InferTile,
                           .lower = LowerTile,
                           .lower_sizes = LowerSizesOfTile};
  return op;
}

}  // namespace quench::ops
