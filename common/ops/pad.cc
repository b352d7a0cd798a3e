#include <numeric>
#include <optional>

#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Elements added (or, when negative, removed) at both ends of one axis. Dims where known before a
// run.
struct AxisPad {
  int axis = 0;
  int64_t begin_entry = 0;  // positions in the `pads` input, where the axes are known
  int64_t end_entry = 0;
  std::optional<Dim> begin;
  std::optional<Dim> end;
};

absl::StatusOr<std::vector<AxisPad>> PadPlan(const OpContext& ctx) {
  const int rank = ctx.input(0).rank();
  std::vector<int> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  if (!AxesAreKnown(ctx, 3)) {  // any axis may be one of them
    std::vector<AxisPad> plan;
    for (const int axis : axes) plan.push_back({.axis = axis, .begin = {}, .end = {}});
    return plan;
  }
  QUENCH_ASSIGN_OR_RETURN(const std::optional<std::vector<int>> given, AxesInput(ctx, 3, rank));
  if (given) axes = *given;
  const auto count = static_cast<int64_t>(axes.size());
  const Dim entries = ctx.input(1).dims[0];
  if (!entries.is(2 * count)) {
    return ctx.Error(fmt::format("pads has {} entries, {} axes take {}",
                                 ctx.symbols().ToString(entries), count, 2 * count));
  }
  const auto pads = ctx.elements(1);
  std::vector<AxisPad> plan;
  for (int64_t i = 0; i < count; ++i) {
    AxisPad pad{.axis = axes[static_cast<size_t>(i)],
                .begin_entry = i,
                .end_entry = i + count,
                .begin = {},
                .end = {}};
    if (pads) pad.begin = (*pads)[static_cast<size_t>(i)];
    if (pads) pad.end = (*pads)[static_cast<size_t>(i + count)];
    plan.push_back(pad);
  }
  return plan;
}

absl::Status InferPad(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kPlainTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1, 1));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {0, 2}));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 3, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 3, 1, 1));
  const std::string mode = ctx.node().String("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap") {
    return ctx.Error(fmt::format("mode is `{}`, Pad has constant, reflect, edge and wrap", mode));
  }
  QUENCH_ASSIGN_OR_RETURN(const std::vector<AxisPad> plan, PadPlan(ctx));
  std::vector<Dim> dims = ctx.input(0).dims;
  for (const AxisPad& pad : plan) {
    Dim& dim = dims[static_cast<size_t>(pad.axis)];
    dim = pad.begin ? ctx.symbols().Add(ctx.symbols().Add(dim, *pad.begin), *pad.end)
                    : ctx.RuntimeDim(pad.axis, std::nullopt);
    if (dim.is_static() && dim.value() < 0)
      return ctx.Error(fmt::format("axis {} would have size {}", pad.axis, dim.value()));
  }
  ctx.SetOutput(0, ctx.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

// The elements that a run adds at both ends of the axes of a plan.
class Pads {
 public:
  explicit Pads(LowerContext& ctx) : ctx_(ctx) {
    if (AxesAreKnown(ctx, 3)) return;
    axes_.emplace(ctx, 3, ctx.input(0).rank());
    ctx.b().Check(
        ctx.in(1).dim(0) == axes_->count() * 2,
        fmt::format("node `{}` (Pad): pads has not two entries for each axis", ctx.node().name));
  }
  E Begin(const AxisPad& pad) const {
    if (pad.begin) return ctx_.Extent(*pad.begin);
    return ctx_.b().Let(
        axes_ ? Computed(pad.axis, ctx_.b().I(0)) : Element(ctx_, 1, pad.begin_entry), "begin");
  }
  E End(const AxisPad& pad) const {
    if (pad.end) return ctx_.Extent(*pad.end);
    return axes_ ? Computed(pad.axis, axes_->count()) : Element(ctx_, 1, pad.end_entry);
  }

 private:
  E Computed(int axis, E offset) const {
    return axes_->Of(axis, [&](E entry) { return ctx_.in(1).At({entry + offset}); });
  }

  LowerContext& ctx_;
  std::optional<RuntimeAxes> axes_;
};

absl::Status LowerSizesOfPad(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<AxisPad> plan, PadPlan(ctx));
  const Pads pads(ctx);
  for (const AxisPad& pad : plan) {
    if (pad.begin) continue;
    const E size = ctx.in(0).dim(pad.axis) + pads.Begin(pad) + pads.End(pad);
    SetRuntimeDim(ctx, ctx.output(0).dims[static_cast<size_t>(pad.axis)], size);
  }
  return absl::OkStatus();
}

// Fills the output, then copies the part of the input that is inside it: both unit stride, no test
// per element.
void LowerConstantPad(LowerContext& ctx, const std::vector<AxisPad>& plan, const Pads& pads) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  E fill = b.F(0, loops::ComputeType(y.dtype()));
  if (ctx.has_input(2))
    fill =
        b.Let(ctx.in(2).At(std::vector<E>(static_cast<size_t>(ctx.in(2).rank()), b.I(0))), "fill");
  b.ParallelForAll(DimsOf(y), [&](std::span<const E> i) { b.Store(y, i, fill); });

  std::vector<E> counts = DimsOf(x);
  std::vector<E> from(counts.size(), b.I(0));
  std::vector<E> shift(counts.size());
  for (const AxisPad& pad : plan) {
    if (pad.begin && pad.begin->is(0) && pad.end->is(0)) continue;
    const auto axis = static_cast<size_t>(pad.axis);
    const E begin = pads.Begin(pad);
    from[axis] = b.Let(Max(-begin, b.I(0)), "from");
    const E to = Min(counts[axis], y.dim(pad.axis) - begin);
    counts[axis] = b.Let(Max(to - from[axis], b.I(0)), "count");
    shift[axis] = begin;
  }
  b.ParallelForAll(counts, [&](std::span<const E> i) {
    std::vector<E> source(i.begin(), i.end());
    std::vector<E> target(i.begin(), i.end());
    for (size_t axis = 0; axis < i.size(); ++axis) {
      if (!shift[axis].valid()) continue;
      source[axis] = i[axis] + from[axis];
      target[axis] = source[axis] + shift[axis];
    }
    b.Store(y, target, x.At(source));
  });
}

// Input position for output position minus padding, for the modes that repeat the input.
E Mirrored(Builder& b, const std::string& mode, E position, E size) {
  if (mode == "edge") return Max(Min(position, size - b.I(1)), b.I(0));
  if (mode == "wrap") return FloorMod(position, size);
  const E period = (size - b.I(1)) * b.I(2);  // 0 for size 1: FloorMod by 0 is 0
  const E phase = FloorMod(position, period);
  return Min(phase, period - phase);
}

absl::Status LowerPad(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<AxisPad> plan, PadPlan(ctx));
  const std::string mode = ctx.node().String("mode", "constant");
  const Pads pads(ctx);
  if (mode == "constant") {
    LowerConstantPad(ctx, plan, pads);
    return absl::OkStatus();
  }
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  std::vector<E> shift(plan.size());
  for (size_t k = 0; k < plan.size(); ++k) {
    shift[k] = pads.Begin(plan[k]);
    b.Check(x.dim(plan[k].axis) > b.I(0) || y.dim(plan[k].axis) == b.I(0),
            fmt::format("node `{}`: Pad has nothing to repeat, axis {} is empty", ctx.node().name,
                        plan[k].axis));
  }
  b.ParallelForAll(DimsOf(y), [&](std::span<const E> i) {
    std::vector<E> source(i.begin(), i.end());
    for (size_t k = 0; k < plan.size(); ++k) {
      E& at = source[static_cast<size_t>(plan[k].axis)];
      at = Mirrored(b, mode, at - shift[k], x.dim(plan[k].axis));
    }
    b.Store(y, i, x.At(source));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& PadOp() {
  static const OpDef op = {
      .name = "Pad",
      .summary = "adds elements around a tensor: constant, reflect, edge or wrap",
      .min_inputs = 2,
      .max_inputs = 4,
      .attributes = {{"mode", AttributeSpec::kString}},
      .quant = QuantRole::kPassThrough,
      .axes = AxisRole::kPerAxis,
      .infer = InferPad,
      .lower = LowerPad,
      .lower_sizes = LowerSizesOfPad};
  return op;
}

}  // namespace quench::ops
