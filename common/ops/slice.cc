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

// An entry for an axis that only a run knows, or whether there is one.
constexpr int kSearched = -1;

// One axis of the slice. `start` and `size` are set when they are known before a run; a step of
// 0 is not known.
struct AxisSlice {
  int axis = 0;
  int entry = 0;  // position in starts, ends, axes, steps; kSearched where only a run knows it
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

absl::Status CheckLists(const OpContext& ctx) {
  for (int i = 1; i < 5; ++i) {
    QUENCH_RETURN_IF_ERROR(RequireType(ctx, i, kIndexTypes));
    QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 1, 1));
    if (!ctx.has_input(i)) continue;
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, ctx.input(i).dims[0], ctx.input(1).dims[0],
                                        "numbers of entries of starts, ends, axes and steps"));
  }
  return absl::OkStatus();
}

// Length of starts, ends, axes and steps, where one of them tells.
std::optional<int64_t> Count(const OpContext& ctx) {
  for (int i = 1; i < 5; ++i) {
    if (ctx.has_input(i) && ctx.input(i).dims[0].is_static()) return ctx.input(i).dims[0].value();
  }
  return std::nullopt;
}

// Any axis may be sliced where a run chooses the axes, or their number.
std::vector<AxisSlice> PlanAll(const OpContext& ctx) {
  std::vector<AxisSlice> plan;
  for (int axis = 0; axis < ctx.input(0).rank(); ++axis)
    plan.push_back({.axis = axis, .entry = kSearched, .step = 0, .start = {}, .size = {}});
  return plan;
}

absl::StatusOr<std::vector<AxisSlice>> SlicePlan(const OpContext& ctx) {
  const int rank = ctx.input(0).rank();
  QUENCH_RETURN_IF_ERROR(CheckLists(ctx));
  const std::optional<int64_t> count = Count(ctx);
  if (!count || !AxesAreKnown(ctx, 3)) return PlanAll(ctx);
  if (*count > rank) return ctx.Error(fmt::format("it has {} starts for {} axes", *count, rank));
  std::vector<int> axes(static_cast<size_t>(*count));
  std::iota(axes.begin(), axes.end(), 0);
  QUENCH_ASSIGN_OR_RETURN(const std::optional<std::vector<int>> given, AxesInput(ctx, 3, rank));
  if (given) axes = *given;
  std::vector<int64_t> steps(static_cast<size_t>(*count), ctx.has_input(4) ? 0 : 1);
  const bool steps_known = *count > 0 && ctx.has_input(4) && ctx.ints(4);
  if (steps_known) steps = *ctx.ints(4);
  if (axes.size() != steps.size())
    return ctx.Error(fmt::format("it has {} axes and {} steps", axes.size(), steps.size()));
  const auto starts = ctx.elements(1);
  const auto ends = ctx.elements(2);
  std::vector<AxisSlice> plan;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (steps_known && steps[i] == 0) return ctx.Error("a step is 0");
    if (steps[i] == std::numeric_limits<int64_t>::min()) steps[i] += 1;
    AxisSlice slice{
        .axis = axes[i], .entry = static_cast<int>(i), .step = steps[i], .start = {}, .size = {}};
    if (starts && ends && steps[i] != 0) PlanAxis(ctx, (*starts)[i], (*ends)[i], slice);
    plan.push_back(slice);
  }
  return plan;
}

void PropagateSliceElements(InferContext& ctx, const std::vector<AxisSlice>& plan) {
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
  QUENCH_ASSIGN_OR_RETURN(const std::vector<AxisSlice> plan, SlicePlan(ctx));
  const Type& x = ctx.input(0);
  std::vector<Dim> dims = x.dims;
  for (const AxisSlice& slice : plan) {
    Dim& dim = dims[static_cast<size_t>(slice.axis)];
    dim = slice.size ? *slice.size : ctx.RuntimeDim(slice.axis, dim);
  }
  ctx.SetOutput(0, x.dtype, std::move(dims));
  PropagateSliceElements(ctx, plan);
  return absl::OkStatus();
}

// The part of an axis that a run slices off; `count` only if it was not known before.
struct SliceRange {
  E start, step, count;
};

// Reads what only a run knows. Made before the loops over the output: it emits checks.
class Ranges {
 public:
  explicit Ranges(LowerContext& ctx) : ctx_(ctx) {
    for (int i = 2; i < 5; ++i) {
      if (ctx.has_input(i))
        EnsureEqual(ctx, ctx.input(i).dims[0], ctx.input(1).dims[0],
                    "numbers of entries of starts, ends, axes and steps");
    }
    if (ctx.has_input(3) && !AxesAreKnown(ctx, 3)) axes_.emplace(ctx, 3, ctx.input(0).rank());
  }

  SliceRange Of(const AxisSlice& slice) const {
    Builder& b = ctx_.b();
    if (slice.start) return {ctx_.Extent(*slice.start), b.I(slice.step), E()};
    const E size = ctx_.in(0).dim(slice.axis);
    const E named = slice.entry == kSearched ? b.Let(IsNamed(slice.axis), "named") : b.Bool(true);
    E step = b.I(slice.step);
    if (slice.step == 0 && ctx_.has_input(4)) {
      // The lowest integer has no opposite.
      const E given = Max(Entry(4, slice), b.I(std::numeric_limits<int64_t>::min() + 1));
      step = b.Let(Select(named, given, b.I(1)), "step");
      b.Check(step != b.I(0), fmt::format("node `{}` (Slice): a step is 0", ctx_.node().name));
    } else if (slice.step == 0) {
      step = b.I(1);
    }
    const E forward = step > b.I(0);
    const E high = b.Let(Select(forward, size, size - b.I(1)), "high");
    const auto clamp = [&](int input, E low) {
      const E raw = b.Let(Entry(input, slice), "raw");
      return b.Let(Min(Max(Select(raw < b.I(0), raw + size, raw), low), high), "at");
    };
    const E start = clamp(1, b.I(0));
    E end = clamp(2, Select(forward, b.I(0), b.I(-1)));
    if (slice.entry == kSearched) end = Select(named, end, size);  // its start is 0, its step 1
    const E span = Select(forward, end - start, start - end);
    const E stride = Select(forward, step, -step);
    return {start, step, b.Let(Max(CeilDiv(span, stride), b.I(0)), "count")};
  }

 private:
  E IsNamed(int axis) const {
    return axes_ ? axes_->Has(axis) : ctx_.in(1).dim(0) > ctx_.b().I(axis);
  }
  // The entry of a list for an axis; 0 where there is none.
  E Entry(int input, const AxisSlice& slice) const {
    if (slice.entry != kSearched) return Element(ctx_, input, slice.entry);
    const auto value = [&](E entry) { return Cast(ctx_.in(input).At({entry}), DataType::kI64); };
    if (axes_) return axes_->Of(slice.axis, value);
    Builder& b = ctx_.b();
    return b.Reduce(BinaryOp::kAdd, b.I(0), ctx_.in(input).dim(0), [&](E entry) {
      return Select(entry == b.I(slice.axis), value(entry), b.I(0));
    });
  }

  LowerContext& ctx_;
  std::optional<RuntimeAxes> axes_;
};

absl::Status LowerSizesOfSlice(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<AxisSlice> plan, SlicePlan(ctx));
  const Ranges ranges(ctx);
  for (const AxisSlice& slice : plan) {
    const Dim dim = ctx.output(0).dims[static_cast<size_t>(slice.axis)];
    if (!slice.size) SetRuntimeDim(ctx, dim, ranges.Of(slice).count);
  }
  return absl::OkStatus();
}

absl::Status LowerSlice(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<AxisSlice> plan, SlicePlan(ctx));
  Builder& b = ctx.b();
  const Ranges ranges(ctx);
  std::vector<SliceRange> taken;
  for (const AxisSlice& slice : plan) taken.push_back(ranges.Of(slice));
  const B y = ctx.out(0);
  b.ParallelForAll(DimsOf(y), [&](std::span<const E> i) {
    std::vector<E> source(i.begin(), i.end());
    for (size_t k = 0; k < plan.size(); ++k) {
      E& at = source[static_cast<size_t>(plan[k].axis)];
      at = (plan[k].step == 1 ? at : at * taken[k].step) + taken[k].start;
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
                           .axes = AxisRole::kListed,
                           .infer = InferSlice,
                           .lower = LowerSlice,
                           .lower_sizes = LowerSizesOfSlice};
  return op;
}

}  // namespace quench::ops
