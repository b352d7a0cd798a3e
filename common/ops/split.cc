#include "common/base/status.h"
#include "common/ops/catalogue.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// The sizes come from data.
bool IsComputed(const OpContext& ctx) { return ctx.has_input(1) && !ctx.elements(1); }

// Size of each part along the axis, where it is known before a run. Without the `split` input all
// parts are ceil(size / parts), the last one takes what is left.
absl::StatusOr<std::vector<Dim>> Parts(const OpContext& ctx, Dim size) {
  const int count = ctx.num_outputs();
  if (ctx.has_input(1)) {
    if (ctx.node().Find("num_outputs") != nullptr)
      return ctx.Error("has both `split` and `num_outputs`");
    const auto sizes = ctx.elements(1);
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

absl::Status InferComputed(InferContext& ctx, int axis) {
  const Type& x = ctx.input(0);
  if (ctx.node().Find("num_outputs") != nullptr)
    return ctx.Error("has both `split` and `num_outputs`");
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1, 1));
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, ctx.input(1).dims[0], ctx.num_outputs(), "entries of `split` and outputs"));
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    std::vector<Dim> dims = x.dims;
    Dim& part = dims[static_cast<size_t>(axis)];
    part = ctx.RuntimeDim(i, part);
    ctx.SetOutput(i, x.dtype, std::move(dims));
  }
  return absl::OkStatus();
}

absl::Status InferSplit(InferContext& ctx) {
  const Type& x = ctx.input(0);
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(ctx.node().Int("axis", 0), x.rank()));
  if (IsComputed(ctx)) return InferComputed(ctx, axis);
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

// Output i is what starts at `start`.
void CopyPart(LowerContext& ctx, int axis, int i, E start) {
  const B y = ctx.out(i);
  if (!y.valid()) return;
  ctx.b().ParallelForAll(DimsOf(y), [&](std::span<const E> at) {
    const E position = at[static_cast<size_t>(axis)];
    ctx.b().Store(y, at, ctx.in(0).At(Replaced(at, axis, i == 0 ? position : position + start)));
  });
}

// All sizes are checked before any of the parts is allocated.
absl::Status LowerSizesOfSplit(LowerContext& ctx) {
  Builder& b = ctx.b();
  const int axis = NormalAxis(ctx.node().Int("axis", 0), ctx.input(0).rank());
  EnsureEqual(ctx, ctx.input(1).dims[0], ctx.num_outputs(), "entries of `split` and outputs");
  const E size = ctx.in(0).dim(axis);
  E offset = b.I(0);
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    const E part = b.Let(Element(ctx, 1, i), "part");
    b.Check(part >= b.I(0) && part <= size - offset,
            fmt::format("node `{}` (Split): part {} does not fit the axis", ctx.node().name, i));
    offset = b.Let(offset + part, "offset");
    if (ctx.has_output(i)) SetRuntimeDim(ctx, ctx.output(i).dims[static_cast<size_t>(axis)], part);
  }
  b.Check(offset == size,
          fmt::format("node `{}` (Split): the parts do not add up to the size of the axis",
                      ctx.node().name));
  return absl::OkStatus();
}

absl::Status LowerSplit(LowerContext& ctx) {
  const Type& x = ctx.input(0);
  const int axis = NormalAxis(ctx.node().Int("axis", 0), x.rank());
  const Dim size = x.dims[static_cast<size_t>(axis)];
  Builder& b = ctx.b();
  if (IsComputed(ctx)) {
    E start = b.I(0);
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      CopyPart(ctx, axis, i, start);
      start = b.Let(start + Element(ctx, 1, i), "start");
    }
    return absl::OkStatus();
  }
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Dim> parts, Parts(ctx, size));
  b.Check(ExtentSum(ctx, parts) == ctx.Extent(size),
          fmt::format("node `{}`: the parts of Split do not add up to the size of the axis",
                      ctx.node().name));
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    CopyPart(ctx, axis, i, ExtentSum(ctx, std::span(parts).first(static_cast<size_t>(i))));
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
      .axes = AxisRole::kAxisOfFirst,
      .infer = InferSplit,
      .lower = LowerSplit,
      .lower_sizes = LowerSizesOfSplit};
  return op;
}

}  // namespace quench::ops
