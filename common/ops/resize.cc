#include <algorithm>

#include "common/ops/resize_plan.h"

namespace quench::ops {
namespace {

absl::Status InferResize(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kNumericTypes | kBoolType));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 2, TypeSet({DataType::kF32})));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 3, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  QUENCH_ASSIGN_OR_RETURN(const ResizePlan plan, PlanResize(ctx));
  std::vector<Dim> dims = ctx.input(0).dims;
  for (const ResizeAxis& axis : plan.axes) {
    dims[static_cast<size_t>(axis.axis)] =
        axis.size ? *axis.size : ctx.RuntimeDim(axis.axis, std::nullopt);
  }
  ctx.SetOutput(0, ctx.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerSizesOfResize(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const ResizePlan plan, PlanResize(ctx));
  Builder& b = ctx.b();
  E common;
  if (plan.runtime_ratio) common = CommonScale(ctx, plan);
  for (const ResizeAxis& axis : plan.axes) {
    if (axis.size) continue;
    E size;
    if (common.valid()) {
      const E in = Cast(ctx.in(0).dim(axis.axis), DataType::kF32);
      size = Cast(Unary(UnaryOp::kFloor, common * in + 0.5), DataType::kI64);
    } else if (plan.by_scales) {
      const E scale =
          axis.scale ? b.F(*axis.scale, DataType::kF32) : ctx.in(2).At({b.I(axis.entry)});
      b.Check(scale > b.F(0, DataType::kF32),
              fmt::format("node `{}`: a scale of Resize is not positive", ctx.node().name));
      const E in = Cast(ctx.in(0).dim(axis.axis), DataType::kF32);
      size = Cast(Unary(UnaryOp::kFloor, in * scale), DataType::kI64);
    } else {
      size = Element(ctx, 3, axis.entry);
    }
    SetRuntimeDim(ctx, ctx.output(0).dims[static_cast<size_t>(axis.axis)], size);
  }
  return absl::OkStatus();
}

// Weighted sum over the taps of all resized axes; few taps are written out.
E Interpolated(LowerContext& ctx, const ResizePlan& plan, std::span<const ResizeTable> tables,
               std::span<const E> at, DataType type) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  int all = 1;
  std::vector<E> extents;
  for (const ResizeTable& table : tables) {
    all = std::min(all * table.taps(), 1 << 20);
    extents.push_back(b.I(table.taps()));
  }
  const auto term = [&](std::span<const E> taps) {
    std::vector<E> source(at.begin(), at.end());
    E weight;
    for (size_t k = 0; k < tables.size(); ++k) {
      const auto axis = static_cast<size_t>(plan.axes[k].axis);
      source[axis] = tables[k].Index(at[axis], taps[k]);
      const E w = Cast(tables[k].Weight(at[axis], taps[k]), type);
      weight = weight.valid() ? weight * w : w;
    }
    return weight * Cast(x.At(source), type);
  };
  if (all > 16) return b.ReduceAll(BinaryOp::kAdd, b.F(0, type), extents, term);
  E sum;
  for (int i = 0; i < all; ++i) {
    std::vector<E> taps(tables.size());
    int rest = i;
    for (size_t k = tables.size(); k-- > 0;) {
      taps[k] = b.I(rest % tables[k].taps());
      rest /= tables[k].taps();
    }
    sum = sum.valid() ? sum + term(taps) : term(taps);
  }
  return sum;
}

absl::Status LowerResize(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const ResizePlan plan, PlanResize(ctx));
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  std::vector<ResizeTable> tables;
  for (const ResizeAxis& axis : plan.axes) {
    tables.emplace_back(ctx, plan, axis);
    QUENCH_RETURN_IF_ERROR(tables.back().Build());
  }
  const DataType own = loops::ComputeType(x.dtype());
  const DataType type = IsFloat(own) ? own : DataType::kF32;
  b.ParallelForAll(DimsOf(y), [&](std::span<const E> at) {
    E value;
    E inside;
    std::vector<E> source(at.begin(), at.end());
    for (size_t k = 0; k < tables.size(); ++k) {
      const auto axis = static_cast<size_t>(plan.axes[k].axis);
      source[axis] = tables[k].Index(at[axis], b.I(0));
      const E here = tables[k].Inside(at[axis]);
      if (here.valid()) inside = inside.valid() ? inside && here : here;
    }
    const bool pick = tables.empty() || plan.mode == "nearest";
    if (pick) {
      value = x.At(source);
    } else {
      value = Interpolated(ctx, plan, tables, at, type);
      // As ONNX Runtime and Pillow do; without antialias, integers are truncated.
      if (plan.antialias && !IsFloat(own)) value = Unary(UnaryOp::kRoundEven, value);
      value = Cast(value, own);
    }
    if (inside.valid()) value = Select(inside, value, Cast(b.F(plan.extrapolation, type), own));
    b.Store(y, at, value);
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& ResizeOp() {
  static const OpDef op = {
      .name = "Resize",
      .summary = "resamples axes: nearest, linear or cubic",
      .min_inputs = 1,
      .max_inputs = 4,
      .attributes = {{"antialias", AttributeSpec::kInt},
                     {"axes", AttributeSpec::kInts},
                     {"coordinate_transformation_mode", AttributeSpec::kString},
                     {"cubic_coeff_a", AttributeSpec::kFloat},
                     {"exclude_outside", AttributeSpec::kInt},
                     {"extrapolation_value", AttributeSpec::kFloat},
                     {"keep_aspect_ratio_policy", AttributeSpec::kString},
                     {"mode", AttributeSpec::kString},
                     {"nearest_mode", AttributeSpec::kString}},
      .infer = InferResize,
      .lower = LowerResize,
      .lower_sizes = LowerSizesOfResize};
  return op;
}

}  // namespace quench::ops
