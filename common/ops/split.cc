#include "common/base/status.h"
#include "common/ops/catalogue.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Size of each part along the axis. Without the `split` input all parts are ceil(size / parts), the
// last one takes what is left.
absl::StatusOr<std::vector<Dim>> Parts(const OpContext& ctx, Dim size) {
  const int count = ctx.num_outputs();
  if (ctx.has_input(1)) {
    if (ctx.node().Find("num_outputs") != nullptr)
      return ctx.Error("has both `split` and `num_outputs`");
    const auto sizes = ctx.elements(1);
    if (!sizes)
      return ctx.UnsupportedError(
          "sizes are computed at run time, they must be known when the model is compiled");
    if (static_cast<int>(sizes->size()) != count) {
      return ctx.Error(
          fmt::format("`split` has {} entries, the node has {} outputs", sizes->size(), count));
    }
    return *sizes;
  }
  const int64_t parts = ctx.node().Int("num_outputs", count);
  if (parts != count)
    return ctx.Error(fmt::format("`num_outputs` is {}, the node has {} outputs", parts, count));
  const Dim each = ctx.symbols().CeilDiv(size, parts);
  std::vector<Dim> sizes(static_cast<size_t>(count), each);
  sizes.back() = ctx.symbols().Sub(size, ctx.symbols().Mul(each, parts - 1));
  return sizes;
}

absl::Status InferSplit(InferContext& ctx) {
  const Type& x = ctx.input(0);
  QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(ctx.node().Int("axis", 0), x.rank()));
  const Dim size = x.dims[static_cast<size_t>(axis)];
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Dim> parts, Parts(ctx, size));
  const auto elements = ctx.elements(0);
  Dim offset = 0;
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    const Dim part = parts[static_cast<size_t>(i)];
    if (part.is_static() && part.value() < 0)
      return ctx.Error(fmt::format("part {} has size {}", i, part.value()));
    std::vector<Dim> dims = x.dims;
    dims[static_cast<size_t>(axis)] = part;
    ctx.SetOutput(i, x.dtype, std::move(dims));
    if (elements && offset.is_static() && part.is_static() &&
        offset.value() + part.value() <= static_cast<int64_t>(elements->size())) {
      const auto begin = elements->begin() + offset.value();
      ctx.SetElements(i, {begin, begin + part.value()});
    }
    offset = ctx.symbols().Add(offset, part);
  }
  return RequireEqual(ctx, offset, size, fmt::format("sum of the parts and size of axis {}", axis));
}

absl::Status LowerSplit(LowerContext& ctx) {
  const Type& x = ctx.input(0);
  const int axis = NormalAxis(ctx.node().Int("axis", 0), x.rank());
  const Dim size = x.dims[static_cast<size_t>(axis)];
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Dim> parts, Parts(ctx, size));
  Builder& b = ctx.b();
  b.Check(ExtentSum(ctx, parts) == ctx.Extent(size),
          fmt::format("node `{}`: the parts of Split do not add up to the size of the axis",
                      ctx.node().name));
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    const B y = ctx.out(i);
    if (!y.valid()) continue;
    const E start = ExtentSum(ctx, std::span(parts).first(static_cast<size_t>(i)));
    b.ParallelForAll(DimsOf(y), [&](std::span<const E> at) {
      const E position = at[static_cast<size_t>(axis)];
      b.Store(y, at, ctx.in(0).At(Replaced(at, axis, i == 0 ? position : position + start)));
    });
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& SplitOp() {
  static const OpDef op = {
      .name = "Split",
      .summary = "cuts a tensor into parts along one axis",
      .min_inputs = 1,
      .max_inputs = 2,
      .min_outputs = 1,
      .max_outputs = -1,
      .attributes = {{"axis", AttributeSpec::kInt}, {"num_outputs", AttributeSpec::kInt}},
      .quant = QuantRole::kPassThrough,
      .infer = InferSplit,
      .lower = LowerSplit};
  return op;
}

}  // namespace quench::ops
