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

// A symbolic size that may be 1 is: the run checks that the number of elements stays the same.
absl::Status InferSqueeze(InferContext& ctx) {
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
                           .infer = InferSqueeze};
  return op;
}

}  // namespace quench::ops
