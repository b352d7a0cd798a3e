#include <algorithm>
#include <limits>
#include <numeric>

#include "common/base/status.h"
#include "common/ops/catalogue.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Exporters write "to the end" as the largest 32- or 64-bit integer.
constexpr int64_t kToTheEnd = std::numeric_limits<int32_t>::max();

// One axis of the slice. `start` and `size` are set when they are known before a run.
struct AxisSlice {
  int axis = 0;
  size_t entry = 0;  // position in starts, ends, axes, steps
  int64_t step = 1;
  std::optional<Dim> start;
  std::optional<Dim> size;
};

// A start or end, counted from the end when negative and clamped to [low, high]. Nullopt when its
// sign is open.
std::optional<Dim> Clamped(const OpContext& ctx, Dim raw, Dim size, Dim low, Dim high) {
  SymbolTable& symbols = ctx.symbols();
  if (raw.is_static() && raw.value() >= kToTheEnd) return high;
  if (raw.is_static() && raw.value() <= -kToTheEnd) return low;
  const Bounds bounds = symbols.BoundsOf(raw);
  if (bounds.min < 0 && bounds.max >= 0) return std::nullopt;
  Dim at = bounds.max < 0 ? symbols.Add(raw, size) : raw;
  if (!ProvablyLessEqual(ctx, low, at)) at = symbols.Max(at, low);
  if (!ProvablyLessEqual(ctx, at, high)) at = symbols.Min(at, high);
  return at;
}

void PlanAxis(const OpContext& ctx, Dim start, Dim end, AxisSlice& slice) {
  SymbolTable& symbols = ctx.symbols();
  const Dim size = ctx.input(0).dims[static_cast<size_t>(slice.axis)];
  const bool forward = slice.step > 0;
  const Dim low = forward ? Dim(0) : Dim(-1);
  const Dim high = forward ? size : symbols.Sub(size, 1);
  const std::optional<Dim> first = Clamped(ctx, start, size, 0, high);
  const std::optional<Dim> last = Clamped(ctx, end, size, low, high);
  if (!first || !last) return;
  const Dim span = forward ? symbols.Sub(*last, *first) : symbols.Sub(*first, *last);
  Dim count = symbols.CeilDiv(span, std::abs(slice.step));
  if (symbols.BoundsOf(count).min < 0) count = symbols.Max(count, 0);
  slice.start = first;
  slice.size = count;
}

absl::StatusOr<std::vector<AxisSlice>> Plan(const OpContext& ctx) {
  const int rank = ctx.input(0).rank();
  if (ctx.input(1).rank() != 1 || !ctx.input(1).dims[0].is_static()) {
    return ctx.UnsupportedError("the number of starts is not known");
  }
  const int64_t count = ctx.input(1).dims[0].value();
  if (count > rank) return ctx.Error(fmt::format("it has {} starts for {} axes", count, rank));
  std::vector<int64_t> raw_axes(static_cast<size_t>(count));
  std::iota(raw_axes.begin(), raw_axes.end(), 0);
  std::vector<int64_t> steps(static_cast<size_t>(count), 1);
  if (ctx.has_input(3)) {
    const auto known = ctx.ints(3);
    if (!known)
      return ctx.UnsupportedError(
          "axes are computed at run time, they must be known when the model is compiled");
    raw_axes = *known;
  }
  if (ctx.has_input(4)) {
    const auto known = ctx.ints(4);
    if (!known)
      return ctx.UnsupportedError(
          "steps are computed at run time, they must be known when the model is compiled");
    steps = *known;
  }
  if (static_cast<int64_t>(raw_axes.size()) != count ||
      static_cast<int64_t>(steps.size()) != count || ctx.input(2).rank() != 1 ||
      !ctx.input(2).dims[0].is(count)) {
    return ctx.Error("starts, ends, axes and steps must have the same number of entries");
  }
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int> axes, NormalAxes(ctx, raw_axes, rank));
  const auto starts = ctx.elements(1);
  const auto ends = ctx.elements(2);
  std::vector<AxisSlice> plan;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (steps[i] == 0) return ctx.Error("a step is 0");
    if (steps[i] == std::numeric_limits<int64_t>::min()) steps[i] += 1;
    AxisSlice slice{.axis = axes[i], .entry = i, .step = steps[i], .start = {}, .size = {}};
    if (starts && ends) PlanAxis(ctx, (*starts)[i], (*ends)[i], slice);
    plan.push_back(slice);
  }
  return plan;
}

void PropagateElements(InferContext& ctx, const std::vector<AxisSlice>& plan) {
  const auto elements = ctx.elements(0);
  if (!elements || ctx.input(0).rank() != 1 || plan.size() > 1) return;
  if (plan.empty()) return ctx.SetElements(0, *elements);
  const AxisSlice& slice = plan.front();
  if (!slice.start || !slice.start->is_static() || !slice.size->is_static()) return;
  std::vector<Dim> result;
  for (int64_t i = 0; i < slice.size->value(); ++i) {
    result.push_back((*elements)[static_cast<size_t>(slice.start->value() + i * slice.step)]);
  }
  ctx.SetElements(0, std::move(result));
}

absl::Status InferSlice(InferContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<AxisSlice> plan, Plan(ctx));
  const Type& x = ctx.input(0);
  std::vector<Dim> dims = x.dims;
  for (const AxisSlice& slice : plan) {
    Dim& dim = dims[static_cast<size_t>(slice.axis)];
    dim = slice.size ? *slice.size : ctx.RuntimeDim(slice.axis, dim);
  }
  ctx.SetOutput(0, x.dtype, std::move(dims));
  PropagateElements(ctx, plan);
  return absl::OkStatus();
}

// Start and number of elements of an axis whose start or end a run decides.
std::pair<E, E> RuntimeSlice(LowerContext& ctx, const AxisSlice& slice) {
  Builder& b = ctx.b();
  const E size = ctx.in(0).dim(slice.axis);
  const bool forward = slice.step > 0;
  const E high = forward ? size : size - b.I(1);
  const auto clamp = [&](int input, E low) {
    const E raw = b.Let(Element(ctx, input, static_cast<int64_t>(slice.entry)), "raw");
    return b.Let(Max(Min(Select(raw < b.I(0), raw + size, raw), high), low), "at");
  };
  const E start = clamp(1, b.I(0));
  const E end = clamp(2, b.I(forward ? 0 : -1));
  const E span = forward ? end - start : start - end;
  return {start, b.Let(Max(CeilDiv(span, b.I(std::abs(slice.step))), b.I(0)), "count")};
}

absl::Status LowerSizesOfSlice(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<AxisSlice> plan, Plan(ctx));
  for (const AxisSlice& slice : plan) {
    const Dim dim = ctx.output(0).dims[static_cast<size_t>(slice.axis)];
    if (!slice.size) SetRuntimeDim(ctx, dim, RuntimeSlice(ctx, slice).second);
  }
  return absl::OkStatus();
}

absl::Status LowerSlice(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<AxisSlice> plan, Plan(ctx));
  Builder& b = ctx.b();
  std::vector<E> starts;
  for (const AxisSlice& slice : plan) {
    starts.push_back(slice.start ? ctx.Extent(*slice.start) : RuntimeSlice(ctx, slice).first);
  }
  const B y = ctx.out(0);
  b.ParallelForAll(DimsOf(y), [&](std::span<const E> i) {
    std::vector<E> source(i.begin(), i.end());
    for (size_t k = 0; k < plan.size(); ++k) {
      E& at = source[static_cast<size_t>(plan[k].axis)];
      at = (plan[k].step == 1 ? at : at * plan[k].step) + starts[k];
    }
    b.Store(y, i, ctx.in(0).At(source));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& SliceOp() {
  static const OpDef op = {.name = "Slice",
                           .summary = "takes a strided range along some axes",
                           .min_inputs = 3,
                           .max_inputs = 5,
                           .attributes = {},
                           .quant = QuantRole::kPassThrough,
                           .infer = InferSlice,
                           .lower = LowerSlice,
                           .lower_sizes = LowerSizesOfSlice};
  return op;
}

}  // namespace quench::ops
