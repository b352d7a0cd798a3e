#include <algorithm>

#include "common/base/status.h"
#include "common/ops/catalogue.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// The axes come from data: the rank follows from their number.
absl::Status InferUnsqueezedAtRunTime(InferContext& ctx) {
  constexpr int kMostAxes = 64;
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  const Type& x = ctx.input(0);
  QUENCH_ASSIGN_OR_RETURN(const int count, AxesCount(ctx, 1, kMostAxes));
  Dim largest = 1;
  for (const Dim dim : x.dims) largest = ctx.symbols().Max(largest, dim);
  std::vector<Dim> dims;
  for (int i = 0; i < x.rank() + count; ++i) dims.push_back(ctx.RuntimeDim(i, largest));
  ctx.SetOutput(0, x.dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerSizesOfUnsqueeze(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const int rank = ctx.output(0).rank();
  const RuntimeAxes axes(ctx, 1, rank);
  for (int i = 0; i < rank; ++i) {
    const E source = axes.KeptBefore(i);
    E size = b.I(1);
    for (int axis = 0; axis < x.rank(); ++axis)
      size = Select(!axes.Has(i) && source == b.I(axis), x.dim(axis), size);
    SetRuntimeDim(ctx, ctx.output(0).dims[static_cast<size_t>(i)], size);
  }
  return absl::OkStatus();
}

absl::Status InferUnsqueeze(InferContext& ctx) {
  const Type& x = ctx.input(0);
  if (!AxesAreKnown(ctx, 1)) return InferUnsqueezedAtRunTime(ctx);
  const std::vector<int64_t> raw = ctx.ints(1).value_or(std::vector<int64_t>());
  const int rank = x.rank() + static_cast<int>(raw.size());
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int> axes, NormalAxes(ctx, raw, rank));
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
                           .infer = InferUnsqueeze,
                           .lower_sizes = LowerSizesOfUnsqueeze};
  return op;
}

}  // namespace quench::ops
