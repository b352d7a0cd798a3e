#include <algorithm>

#include "common/base/status.h"
#include "common/ops/catalogue.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferUnsqueeze(InferContext& ctx) {
  const Type& x = ctx.input(0);
  const auto raw = ctx.ints(1);
  if (!raw)
    return ctx.UnsupportedError(
        "axes are computed at run time, they must be known when the model is compiled");
  const int rank = x.rank() + static_cast<int>(raw->size());
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int> axes, NormalAxes(ctx, *raw, rank));
  std::vector<Dim> dims;
  auto source = x.dims.begin();
  for (int axis = 0; axis < rank; ++axis) {
    const bool added = std::find(axes.begin(), axes.end(), axis) != axes.end();
    dims.push_back(added ? Dim(1) : *source++);
  }
  ctx.SetOutput(0, x.dtype, std::move(dims));
  if (const auto elements = ctx.elements(0); elements && rank <= 1) ctx.SetElements(0, *elements);
  return absl::OkStatus();
}

}  // namespace

const OpDef& UnsqueezeOp() {
  static const OpDef op = {.name = "Unsqueeze",
                           .summary = "inserts axes of size 1",
                           .kind = OpKind::kView,
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .attributes = {},
                           .quant = QuantRole::kPassThrough,
                           .infer = InferUnsqueeze};
  return op;
}

}  // namespace quench::ops
