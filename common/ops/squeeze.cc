#include <algorithm>

#include "common/base/status.h"
#include "common/ops/catalogue.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Axes to drop when the node names none: those of size 1. A symbolic size that may be 1 leaves the
// rank open.
absl::StatusOr<std::vector<int>> UnitAxes(const OpContext& ctx) {
  const Type& x = ctx.input(0);
  std::vector<int> axes;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const Dim dim = x.dims[static_cast<size_t>(axis)];
    if (dim.is(1)) {
      axes.push_back(axis);
    } else if (!dim.is_static() && ctx.symbols().BoundsOf(dim).min <= 1) {
      return ctx.UnsupportedError(
          fmt::format("names no axes and dim `{}` may be 1, so the rank of the output is not "
                      "known; fix that dim",
                      ctx.symbols().ToString(dim)));
    }
  }
  return axes;
}

// The axes come from data: the rank follows from their number, the sizes are those of the others.
absl::Status InferSqueezedAtRunTime(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  const Type& x = ctx.input(0);
  QUENCH_ASSIGN_OR_RETURN(const int count, AxesCount(ctx, 1, x.rank()));
  Dim largest = 0;
  for (const Dim dim : x.dims) largest = ctx.symbols().Max(largest, dim);
  std::vector<Dim> dims;
  for (int i = 0; i < x.rank() - count; ++i) dims.push_back(ctx.RuntimeDim(i, largest));
  ctx.SetOutput(0, x.dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerSizesOfSqueeze(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const RuntimeAxes axes(ctx, 1, x.rank());
  for (int axis = 0; axis < x.rank(); ++axis) {
    b.Check(!axes.Has(axis) || x.dim(axis) == b.I(1),
            fmt::format("node `{}` (Squeeze): axis {} is dropped, its size is not 1",
                        ctx.node().name, axis));
  }
  for (int i = 0; i < ctx.output(0).rank(); ++i) {
    E size = b.I(0);
    for (int axis = 0; axis < x.rank(); ++axis) {
      const E here = !axes.Has(axis) && axes.KeptBefore(axis) == b.I(i);
      size = Select(here, x.dim(axis), size);
    }
    SetRuntimeDim(ctx, ctx.output(0).dims[static_cast<size_t>(i)], size);
  }
  return absl::OkStatus();
}

// A symbolic size that may be 1 is: the run checks that the number of elements stays the same.
absl::Status InferSqueeze(InferContext& ctx) {
  if (!AxesAreKnown(ctx, 1)) return InferSqueezedAtRunTime(ctx);
  const Type& x = ctx.input(0);
  QUENCH_ASSIGN_OR_RETURN(std::optional<std::vector<int>> axes, AxesInput(ctx, 1, x.rank()));
  if (!axes) {
    QUENCH_ASSIGN_OR_RETURN(axes, UnitAxes(ctx));
  }
  std::vector<Dim> dims;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const Dim dim = x.dims[static_cast<size_t>(axis)];
    if (std::find(axes->begin(), axes->end(), axis) == axes->end()) {
      dims.push_back(dim);
    } else if (const Bounds sizes = ctx.symbols().BoundsOf(dim); sizes.min > 1 || sizes.max < 1) {
      return ctx.Error(fmt::format("axis {} has size {}, only axes of size 1 can be dropped", axis,
                                   ctx.symbols().ToString(dim)));
    }
  }
  ctx.SetOutput(0, x.dtype, std::move(dims));
  if (const auto elements = ctx.elements(0)) ctx.SetElements(0, *elements);
  return absl::OkStatus();
}

}  // namespace

const OpDef& SqueezeOp() {
  static const OpDef op = {.name = "Squeeze",
                           .summary = "drops axes of size 1",
                           .kind = OpKind::kView,
                           .min_inputs = 1,
                           .max_inputs = 2,
                           .attributes = {},
                           .quant = QuantRole::kPassThrough,
                           .infer = InferSqueeze,
                           .lower_sizes = LowerSizesOfSqueeze};
  return op;
}

}  // namespace quench::ops
