#include "common/ops/resize_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quench::ops {
namespace {

constexpr int64_t kMaxTaps = 1024;  // antialias beyond this factor of shrinking is refused

bool OneOf(const std::string& value, std::initializer_list<const char*> allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

absl::Status ReadAttributes(const OpContext& ctx, ResizePlan& plan) {
  const Node& node = ctx.node();
  plan.mode = node.String("mode", "nearest");
  plan.coordinates = node.String("coordinate_transformation_mode", "half_pixel");
  plan.nearest = node.String("nearest_mode", "round_prefer_floor");
  plan.policy = node.String("keep_aspect_ratio_policy", "stretch");
  plan.antialias = node.Int("antialias", 0) != 0 && plan.mode != "nearest";
  plan.exclude_outside = node.Int("exclude_outside", 0) != 0;
  plan.cubic_a = node.Float("cubic_coeff_a", -0.75);
  plan.extrapolation = node.Float("extrapolation_value", 0);
  const auto unknown = [&](const char* attribute, const std::string& value) {
    return ctx.Error(fmt::format("unknown {} `{}`", attribute, value));
  };
  if (!OneOf(plan.mode, {"nearest", "linear", "cubic"})) return unknown("mode", plan.mode);
  if (!OneOf(plan.coordinates,
             {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
              "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"})) {
    return unknown("coordinate_transformation_mode", plan.coordinates);
  }
  if (!OneOf(plan.nearest, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}))
    return unknown("nearest_mode", plan.nearest);
  if (!OneOf(plan.policy, {"stretch", "not_larger", "not_smaller"}))
    return unknown("keep_aspect_ratio_policy", plan.policy);
  return absl::OkStatus();
}

// An input that is there and not an empty placeholder.
bool Given(const OpContext& ctx, int i) {
  return ctx.has_input(i) && !(ctx.input(i).rank() == 1 && ctx.input(i).dims[0].is(0));
}

// floor(in * scale) in f32, as ONNX Runtime computes it; as a dim expression where the scale is a
// small ratio.
std::optional<Dim> Scaled(SymbolTable& symbols, Dim in, double scale) {
  const auto factor = static_cast<float>(scale);
  if (in.is_static())
    return Dim(static_cast<int64_t>(std::floor(static_cast<float>(in.value()) * factor)));
  for (int64_t q = 1; q <= 16; ++q) {
    const double p = std::round(scale * static_cast<double>(q));
    if (p < 1 || p > 4096 || static_cast<float>(p / static_cast<double>(q)) != factor) continue;
    return symbols.FloorDiv(symbols.Mul(in, static_cast<int64_t>(p)), q);
  }
  return std::nullopt;
}

absl::Status ApplyScales(const OpContext& ctx, ResizePlan& plan) {
  const Tensor* scales = ctx.constant(2);
  for (ResizeAxis& axis : plan.axes) {
    if (scales == nullptr) continue;
    const double scale = scales->FloatAt(axis.entry);
    if (!(scale > 0) || scale > 1e6)
      return ctx.Error(fmt::format("scale {} of axis {} must be > 0", scale, axis.axis));
    const Dim in = ctx.input(0).dims[static_cast<size_t>(axis.axis)];
    axis.scale = scale;
    axis.size = Scaled(ctx.symbols(), in, scale);
    axis.identity = scale == 1;
  }
  return absl::OkStatus();
}

// The common scale of a policy that keeps the aspect ratio, where it is known before a run.
void KeepAspectRatio(const OpContext& ctx, ResizePlan& plan) {
  std::optional<float> common;
  for (const ResizeAxis& axis : plan.axes) {
    const Dim in = ctx.input(0).dims[static_cast<size_t>(axis.axis)];
    if (!axis.size || !axis.size->is_static() || !in.is_static() || in.value() < 1) {
      plan.runtime_ratio = true;
      break;
    }
    const float scale = static_cast<float>(axis.size->value()) / static_cast<float>(in.value());
    if (!common) common = scale;
    common = plan.policy == "not_larger" ? std::min(*common, scale) : std::max(*common, scale);
  }
  for (ResizeAxis& axis : plan.axes) {
    const Dim in = ctx.input(0).dims[static_cast<size_t>(axis.axis)];
    if (plan.runtime_ratio) {
      axis.scale.reset();
      axis.size.reset();
      axis.identity = false;
      continue;
    }
    axis.scale = *common;
    axis.size = static_cast<int64_t>(std::floor(*common * static_cast<float>(in.value()) + 0.5F));
    axis.identity = *common == 1;
  }
}

absl::Status ApplySizes(const OpContext& ctx, ResizePlan& plan) {
  const auto sizes = ctx.elements(3);
  for (ResizeAxis& axis : plan.axes) {
    if (!sizes) continue;
    const Dim in = ctx.input(0).dims[static_cast<size_t>(axis.axis)];
    const Dim size = (*sizes)[static_cast<size_t>(axis.entry)];
    if (size.is_static() && size.value() < 0)
      return ctx.Error(fmt::format("size {} of axis {}", size.value(), axis.axis));
    axis.size = size;
    axis.identity = size == in;
    if (size.is_static() && in.is_static() && in.value() > 0) {
      axis.scale = static_cast<float>(size.value()) / static_cast<float>(in.value());
    }
  }
  if (plan.policy != "stretch") KeepAspectRatio(ctx, plan);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResizePlan> PlanResize(const OpContext& ctx) {
  ResizePlan plan;
  QUENCH_RETURN_IF_ERROR(ReadAttributes(ctx, plan));
  const int rank = ctx.input(0).rank();
  std::vector<int> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  if (ctx.node().Find("axes") != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(axes, NormalAxes(ctx, ctx.node().Ints("axes"), rank));
  }
  plan.by_scales = Given(ctx, 2);
  if (plan.by_scales == Given(ctx, 3)) return ctx.Error("needs either scales or sizes");
  const int input = plan.by_scales ? 2 : 3;
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, input, 1, 1));
  const auto count = static_cast<int64_t>(axes.size());
  plan.entries = static_cast<int>(count);
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, ctx.input(input).dims[0], count, "number of scales or sizes and axes"));
  for (int i = 0; i < static_cast<int>(count); ++i)
    plan.axes.push_back(
        {.axis = axes[static_cast<size_t>(i)], .entry = i, .scale = {}, .size = {}});
  if (plan.coordinates == "tf_crop_and_resize") {
    if (!Given(ctx, 1)) return ctx.Error("tf_crop_and_resize needs roi");
    QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1, 1));
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(ctx, ctx.input(1).dims[0], 2 * count, "length of roi and twice the axes"));
  }
  QUENCH_RETURN_IF_ERROR(plan.by_scales ? ApplyScales(ctx, plan) : ApplySizes(ctx, plan));
  for (const ResizeAxis& axis : plan.axes) {
    if (!plan.antialias || axis.scale) continue;
    return ctx.UnsupportedError(
        "antialias needs scales, or sizes, that are known when the model is "
        "compiled");
  }
  if (plan.coordinates !=
      "tf_crop_and_resize") {  // a region of interest may cut an axis whose size stays
    std::erase_if(plan.axes, [](const ResizeAxis& axis) { return axis.identity; });
  }
  return plan;
}

E CommonScale(LowerContext& ctx, const ResizePlan& plan) {
  Builder& b = ctx.b();
  E common;
  for (const ResizeAxis& axis : plan.axes) {
    const E in = ctx.in(0).dim(axis.axis);
    b.Check(in > b.I(0), fmt::format("node `{}`: Resize of an empty axis", ctx.node().name));
    const E size = Element(ctx, 3, axis.entry);
    const E scale = Cast(size, DataType::kF32) / Cast(in, DataType::kF32);
    if (!common.valid()) common = scale;
    common = b.Let(plan.policy == "not_larger" ? Min(common, scale) : Max(common, scale), "common");
  }
  return common;
}

ResizeTable::ResizeTable(LowerContext& ctx, const ResizePlan& plan, const ResizeAxis& axis)
    : ctx_(ctx), plan_(plan), axis_(axis) {}

absl::Status ResizeTable::Build() {
  Builder& b = ctx_.b();
  const int radius = plan_.mode == "cubic" ? 2 : 1;
  if (plan_.mode != "nearest") {
    first_tap_ = 1 - radius;
    if (plan_.antialias) {
      first_tap_ = static_cast<int>(std::floor(-radius / std::min(*axis_.scale, 1.0))) + 1;
    }
    if (2 - 2 * first_tap_ > kMaxTaps)
      return ctx_.UnsupportedError(fmt::format("antialias at scale {}", *axis_.scale));
    taps_ = 2 - 2 * first_tap_;
  }
  if (plan_.coordinates == "tf_crop_and_resize")
    EnsureEqual(ctx_, ctx_.input(1).dims[0], 2 * plan_.entries, "length of roi and twice the axes");
  const E in = b.Let(ctx_.in(0).dim(axis_.axis), "in");
  const E out = b.Let(ctx_.out(0).dim(axis_.axis), "out");
  const auto scope = loops::ScratchScope::kFunction;
  index_ = b.Scratch("index", DataType::kI64, {ctx_.out(0).dim(axis_.axis), b.I(taps_)}, scope);
  weight_ = b.Scratch("weight", DataType::kF32, {ctx_.out(0).dim(axis_.axis), b.I(taps_)}, scope);
  if (plan_.coordinates == "tf_crop_and_resize")
    inside_ = b.Scratch("inside", DataType::kBool, {ctx_.out(0).dim(axis_.axis)}, scope);
  b.Check(in > b.I(0) || out == b.I(0),
          fmt::format("node `{}`: Resize of an empty axis", ctx_.node().name));
  E scale;
  if (axis_.scale) {
    scale = b.F(*axis_.scale, DataType::kF32);
  } else if (plan_.runtime_ratio) {
    scale = CommonScale(ctx_, plan_);
  } else if (plan_.by_scales) {
    scale = b.Let(ctx_.in(2).At({b.I(axis_.entry)}), "scale");
  } else {
    scale = b.Let(Cast(out, DataType::kF32) / Cast(in, DataType::kF32), "scale");
  }
  b.ParallelFor(out, [&](E position) {
    const E x = b.Let(Coordinate(Cast(position, DataType::kF32), in, scale), "x");
    if (inside_.valid()) {
      b.Store(inside_, {position},
              x >= b.F(0, DataType::kF32) && x <= Cast(in - b.I(1), DataType::kF32));
    }
    StoreTaps(x, position, in, scale);
  });
  return absl::OkStatus();
}

// Place in the input, in f32 as ONNX Runtime and PyTorch compute it. Formulas: ONNX Resize.
E ResizeTable::Coordinate(E x, E in, E scale) {
  Builder& b = ctx_.b();
  const E size = Cast(in, DataType::kF32);
  const E count = ctx_.out(0).dim(axis_.axis);
  const E resized = Cast(count, DataType::kF32);
  const E zero = b.F(0, DataType::kF32);
  const E half = (x + 0.5) / scale - 0.5;
  // not used when there is but one element
  const E steps = Max(resized - 1.0, b.F(1, DataType::kF32));
  if (plan_.coordinates == "half_pixel") return half;
  if (plan_.coordinates == "asymmetric") return x / scale;
  if (plan_.coordinates == "tf_half_pixel_for_nn") return (x + 0.5) / scale;  // opset 11 and 12
  if (plan_.coordinates == "pytorch_half_pixel") return Select(count > b.I(1), half, zero);
  if (plan_.coordinates == "align_corners")
    return Select(count > b.I(1), x * (size - 1.0) / steps, zero);
  if (plan_.coordinates == "half_pixel_symmetric") {
    const E adjustment = resized / (size * scale);
    return size * 0.5 * (b.F(1, DataType::kF32) - adjustment) + half;
  }
  const B roi = ctx_.in(1);
  const E start = Cast(roi.At({b.I(axis_.entry)}), DataType::kF32);
  const E end = Cast(roi.At({b.I(axis_.entry + plan_.entries)}), DataType::kF32);
  const E many = start * (size - 1.0) + x * (end - start) * (size - 1.0) / steps;
  return Select(count > b.I(1), many, (start + end) * 0.5 * (size - 1.0));
}

E ResizeTable::Nearest(E x) {
  if (plan_.nearest == "floor") return Unary(UnaryOp::kFloor, x);
  if (plan_.nearest == "ceil") return Unary(UnaryOp::kCeil, x);
  if (plan_.nearest == "round_prefer_floor") return Unary(UnaryOp::kCeil, x - 0.5);
  return Unary(UnaryOp::kFloor, x + 0.5);
}

// Weight at a distance: the triangle, or Keys' cubic with parameter a.
E ResizeTable::Kernel(E distance) {
  Builder& b = ctx_.b();
  const E d = Unary(UnaryOp::kAbs, distance);
  const E zero = b.F(0, DataType::kF32);
  if (plan_.mode == "linear") return Max(b.F(1, DataType::kF32) - d, zero);
  const double a = plan_.cubic_a;
  const E near = (d * (a + 2) - (a + 3)) * d * d + 1.0;
  const E far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a;
  return Select(d <= b.F(1, DataType::kF32), near, Select(d < b.F(2, DataType::kF32), far, zero));
}

// Taps are counted from the left neighbour ceil(x) - 1; places outside the input take the edge's
// value, or no weight with exclude_outside.
void ResizeTable::StoreTaps(E x, E position, E in, E scale) {
  Builder& b = ctx_.b();
  const E last = in - b.I(1);
  if (plan_.mode == "nearest") {
    b.Store(index_, {position, b.I(0)}, Max(Min(Cast(Nearest(x), DataType::kI64), last), b.I(0)));
    b.Store(weight_, {position, b.I(0)}, b.F(1, DataType::kF32));
    return;
  }
  const E left = b.Let(Unary(UnaryOp::kCeil, x) - 1.0, "left");
  const E ratio = b.Let(x - left, "ratio");
  const auto weight = [&](E tap) {
    const E offset = Cast(tap, DataType::kF32) + static_cast<double>(first_tap_) - ratio;
    E w = Kernel(plan_.antialias ? offset * Min(scale, b.F(1, DataType::kF32)) : offset);
    const E place = Cast(left, DataType::kI64) + tap + b.I(first_tap_);
    if (plan_.exclude_outside)
      w = Select(place >= b.I(0) && place <= last, w, b.F(0, DataType::kF32));
    return w;
  };
  E total = b.F(1, DataType::kF32);
  if (plan_.antialias || plan_.exclude_outside) {
    total = b.Let(b.Reduce(BinaryOp::kAdd, b.F(0, DataType::kF32), b.I(taps_), weight), "total");
  }
  b.For(b.I(taps_), [&](E tap) {
    const E place = Cast(left, DataType::kI64) + tap + b.I(first_tap_);
    b.Store(index_, {position, tap}, Max(Min(place, last), b.I(0)));
    b.Store(weight_, {position, tap}, weight(tap) / total);
  });
}

}  // namespace quench::ops
