#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferAffineGrid(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 3, 3));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1, 1));
  const Dim length = ctx.input(1).dims[0];
  if (!length.is(4) && !length.is(5)) return ctx.Error("size must have 4 or 5 entries");
  const int64_t spatial = length.value() - 2;
  const std::vector<Dim>& theta = ctx.input(0).dims;
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, theta[1], spatial, "rows of theta and spatial axes"));
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, theta[2], spatial + 1, "columns of theta and spatial axes + 1"));
  std::vector<Dim> dims = {theta[0]};
  const auto size = ctx.elements(1);
  if (size)
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, (*size)[0], theta[0], "batch of size and theta"));
  for (int64_t axis = 0; axis < spatial; ++axis) {
    dims.push_back(size ? (*size)[static_cast<size_t>(axis + 2)]
                        : ctx.RuntimeDim(static_cast<int>(axis), std::nullopt));
    if (dims.back().is_static() && dims.back().value() < 0)
      return ctx.Error(fmt::format("size has {}", dims.back().value()));
  }
  dims.push_back(spatial);
  ctx.SetOutput(0, ctx.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerSizesOfAffineGrid(LowerContext& ctx) {
  for (int axis = 1; axis + 1 < ctx.output(0).rank(); ++axis) {
    SetRuntimeDim(ctx, ctx.output(0).dims[static_cast<size_t>(axis)], Element(ctx, 1, axis + 1));
  }
  return absl::OkStatus();
}

// Coordinate in [-1, 1] of place `i` along an axis: of the element's centre, -1 and 1 at the outer
// edges, or at the outer centres with align_corners. The coordinate of a lone element is 0, as in
// PyTorch, whose function ONNX's text names; ONNX's own formula divides by zero there.
E Coordinate(Builder& b, E i, E size, bool align, DataType type) {
  const E place = Cast(i, type);
  const E count = Cast(size, type);
  if (!align) return (place * 2.0 + 1.0) / count - 1.0;
  const E last = count - 1.0;
  return (place * 2.0 - last) / Max(last, b.F(1, type));
}

absl::Status LowerAffineGrid(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B theta = ctx.in(0);
  const B y = ctx.out(0);
  const DataType type = loops::ComputeType(theta.dtype());
  const bool align = ctx.node().Int("align_corners", 0) != 0;
  const int spatial = y.rank() - 2;
  EnsureEqual(ctx, ctx.input(0).dims[1], spatial, "rows of theta and spatial axes");
  EnsureEqual(ctx, ctx.input(0).dims[2], spatial + 1, "columns of theta and spatial axes + 1");
  std::vector<E> points = DimsOf(y);
  points.pop_back();
  b.ParallelForAll(points, [&](std::span<const E> i) {
    std::vector<E> position;  // x first: the last axis
    for (int axis = spatial; axis >= 1; --axis) {
      position.push_back(
          b.Let(Coordinate(b, i[static_cast<size_t>(axis)], y.dim(axis), align, type), "position"));
    }
    for (int row = 0; row < spatial; ++row) {
      E sum = theta.At({i[0], b.I(row), b.I(spatial)});
      for (int k = 0; k < spatial; ++k)
        sum = sum + theta.At({i[0], b.I(row), b.I(k)}) * position[static_cast<size_t>(k)];
      b.Store(y, Inserted(i, static_cast<int>(i.size()), b.I(row)), sum);
    }
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& AffineGridOp() {
  static const OpDef op = {.name = "AffineGrid",
                           .summary = "sampling grid of an affine map",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .attributes = {{"align_corners", AttributeSpec::kInt}},
                           .infer = InferAffineGrid,
                           .lower = LowerAffineGrid,
                           .lower_sizes = LowerSizesOfAffineGrid};
  return op;
}

}  // namespace quench::ops
