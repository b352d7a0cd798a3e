#include <numeric>

#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::StatusOr<std::vector<int>> AxesOf(const OpContext& ctx) {
  const int rank = ctx.input(0).rank();
  if (ctx.node().Find("axes") != nullptr) return NormalAxes(ctx, ctx.node().Ints("axes"), rank);
  std::vector<int> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

absl::Status InferCenterCropPad(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kPlainTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1, 1));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int> axes, AxesOf(ctx));
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, ctx.input(1).dims[0], static_cast<int64_t>(axes.size()),
                                      "length of shape and number of axes"));
  const auto shape = ctx.elements(1);
  std::vector<Dim> dims = ctx.input(0).dims;
  for (size_t i = 0; i < axes.size(); ++i) {
    Dim& dim = dims[static_cast<size_t>(axes[i])];
    dim = shape ? (*shape)[i] : ctx.RuntimeDim(axes[i], std::nullopt);
    if (dim.is_static() && dim.value() < 0)
      return ctx.Error(fmt::format("shape has {}, sizes are at least 0", dim.value()));
  }
  ctx.SetOutput(0, ctx.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerSizesOfCenterCropPad(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int> axes, AxesOf(ctx));
  for (size_t i = 0; i < axes.size(); ++i) {
    SetRuntimeDim(ctx, ctx.output(0).dims[static_cast<size_t>(axes[i])],
                  Element(ctx, 1, static_cast<int64_t>(i)));
  }
  return absl::OkStatus();
}

// If the difference is odd, the larger half goes to the end.
absl::Status LowerCenterCropPad(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  std::vector<E> counts, from, to;
  bool padded = false;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    const E spare = x.dim(axis) - y.dim(axis);
    const bool same = ctx.input(0).dims[at] == ctx.output(0).dims[at];
    counts.push_back(same ? x.dim(axis) : b.Let(Min(x.dim(axis), y.dim(axis)), "count"));
    from.push_back(same ? E() : b.Let(Max(spare, b.I(0)) / b.I(2), "from"));
    to.push_back(same ? E() : b.Let(Max(-spare, b.I(0)) / b.I(2), "to"));
    padded = padded || !same;
  }
  if (padded)
    b.ParallelForAll(DimsOf(y), [&](std::span<const E> i) {
      b.Store(y, i, b.F(0, loops::ComputeType(y.dtype())));
    });
  b.ParallelForAll(counts, [&](std::span<const E> i) {
    std::vector<E> source(i.begin(), i.end());
    std::vector<E> target(i.begin(), i.end());
    for (size_t axis = 0; axis < i.size(); ++axis) {
      if (!from[axis].valid()) continue;
      source[axis] = i[axis] + from[axis];
      target[axis] = i[axis] + to[axis];
    }
    b.Store(y, target, x.At(source));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& CenterCropPadOp() {
  static const OpDef op = {.name = "CenterCropPad",
                           .summary = "crops or zero-pads around the centre to given sizes",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .attributes = {{"axes", AttributeSpec::kInts}},
                           .quant = QuantRole::kPassThrough,
                           .infer = InferCenterCropPad,
                           .lower = LowerCenterCropPad,
                           .lower_sizes = LowerSizesOfCenterCropPad};
  return op;
}

}  // namespace quench::ops
