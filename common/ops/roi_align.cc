#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferRoiAlign(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {0, 1}));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 2, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 4, 4));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 2, 2));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 2, 1, 1));
  const Node& node = ctx.node();
  const Dim rois = ctx.input(1).dims[0];
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, ctx.input(1).dims[1], 4, "coordinates of a region and 4"));
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, ctx.input(2).dims[0], rois, "number of batch indices and regions"));
  const std::string mode = node.String("mode", "avg");
  const std::string coordinates = node.String("coordinate_transformation_mode", "half_pixel");
  if (mode != "avg" && mode != "max")
    return ctx.Error(fmt::format("mode is `{}`, RoiAlign has avg and max", mode));
  if (coordinates != "half_pixel" && coordinates != "output_half_pixel") {
    return ctx.Error(fmt::format("unknown coordinate_transformation_mode `{}`", coordinates));
  }
  const int64_t height = node.Int("output_height", 1);
  const int64_t width = node.Int("output_width", 1);
  if (height < 1 || width < 1 || node.Int("sampling_ratio", 0) < 0)
    return ctx.Error("output sizes must be > 0 and sampling_ratio >= 0");
  ctx.SetOutput(0, ctx.input(0).dtype, {rois, ctx.input(0).dims[1], height, width});
  return absl::OkStatus();
}

// The two neighbours of a sample along one axis with their weights; both weights are 0 more than
// one element outside.
struct Neighbours {
  E low, high, low_weight, high_weight;
};

Neighbours NeighboursOf(Builder& b, E at, E size) {
  const DataType type = at.type();
  const E extent = Cast(size, type);
  const E zero = b.F(0, type);
  const E last = size - b.I(1);
  const E inside = Cast(at >= b.F(-1, type) && at <= extent, type);
  const E clamped = Min(Max(at, zero), Cast(last, type));
  const E low = Min(Cast(clamped, DataType::kI64), last);
  const E fraction = clamped - Cast(low, type);
  return {low, Min(low + b.I(1), last), (b.F(1, type) - fraction) * inside, fraction * inside};
}

// One axis of one region: where its bins start, their size, and the samples per bin.
struct Bins {
  E start, size, samples;
};

Bins BinsOf(LowerContext& ctx, E region, int axis, int64_t count) {  // axis 0: y, 1: x
  Builder& b = ctx.b();
  const DataType type = loops::ComputeType(ctx.input(0).dtype);
  const bool half =
      ctx.node().String("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const E scale = b.F(ctx.node().Float("spatial_scale", 1.0), type);
  const E offset = b.F(half ? 0.5 : 0, type);
  const B rois = ctx.in(1);
  const E begin = b.Let(rois.At({region, b.I(1 - axis)}) * scale - offset, "begin");
  E length = rois.At({region, b.I(3 - axis)}) * scale - offset - begin;
  if (!half) length = Max(length, b.F(1, type));
  const E size = b.Let(length / b.F(static_cast<double>(count), type), "bin");
  const int64_t ratio = ctx.node().Int("sampling_ratio", 0);
  // A region may be given by data of any size: more samples than the axis has elements add nothing.
  const E limit = ctx.in(0).dim(axis + 2) * b.I(2) + b.I(1);
  const E adaptive = Min(Cast(Unary(UnaryOp::kCeil, size), DataType::kI64), limit);
  return {begin, size, ratio > 0 ? b.I(ratio) : b.Let(Max(adaptive, b.I(0)), "samples")};
}

absl::Status LowerRoiAlign(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const DataType type = loops::ComputeType(x.dtype());
  const bool average = ctx.node().String("mode", "avg") == "avg";
  const int64_t height = ctx.node().Int("output_height", 1);
  const int64_t width = ctx.node().Int("output_width", 1);
  EnsureEqual(ctx, ctx.input(2).dims[0], ctx.input(1).dims[0],
              "number of batch indices and regions");
  b.Check(x.dim(2) > b.I(0) && x.dim(3) > b.I(0),
          fmt::format("node `{}`: RoiAlign of an empty image", ctx.node().name));
  b.ParallelFor(y.dim(0), [&](E region) {
    const E batch = CheckedIndex(b, ctx.in(2).At({region}), x.dim(0),
                                 fmt::format("node `{}`: a batch index", ctx.node().name));
    const Bins rows = BinsOf(ctx, region, 0, height);
    const Bins columns = BinsOf(ctx, region, 1, width);
    b.ParallelForAll(std::vector<E>{x.dim(1), b.I(height), b.I(width)}, [&](std::span<const E> i) {
      const E channel = i[0];
      const auto sample = [&](const Bins& bins, E bin, E k) {
        const E step = (Cast(k, type) + 0.5) * bins.size / Cast(Max(bins.samples, b.I(1)), type);
        return bins.start + Cast(bin, type) * bins.size + step;
      };
      const E row = i[1];
      const E column = i[2];
      const auto value = [&](std::span<const E> k) {
        const Neighbours v = NeighboursOf(b, sample(rows, row, k[0]), x.dim(2));
        const Neighbours h = NeighboursOf(b, sample(columns, column, k[1]), x.dim(3));
        const auto term = [&](E r, E c, E weight) { return x.At({batch, channel, r, c}) * weight; };
        const E a = term(v.low, h.low, v.low_weight * h.low_weight);
        const E c = term(v.low, h.high, v.low_weight * h.high_weight);
        const E d = term(v.high, h.low, v.high_weight * h.low_weight);
        const E e = term(v.high, h.high, v.high_weight * h.high_weight);
        return average ? a + c + d + e
                       : Max(Max(a, c), Max(d, e));  // as ONNX Runtime defines the maximum
      };
      const std::vector<E> extents = {rows.samples, columns.samples};
      E result;
      if (average) {
        const E count = Cast(Max(rows.samples * columns.samples, b.I(1)), type);
        result = b.ReduceAll(BinaryOp::kAdd, b.F(0, type), extents, value) / count;
      } else {
        const E none = rows.samples * columns.samples == b.I(0);
        result = Select(none, b.F(0, type),
                        b.ReduceAll(BinaryOp::kMax, LowestOf(b, type), extents, value));
      }
      b.Store(y, {region, channel, row, column}, result);
    });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& RoiAlignOp() {
  static const OpDef op = {
      .name = "RoiAlign",
      .summary = "pools regions of interest by bilinear samples",
      .min_inputs = 3,
      .max_inputs = 3,
      .attributes = {{"coordinate_transformation_mode", AttributeSpec::kString},
                     {"mode", AttributeSpec::kString},
                     {"output_height", AttributeSpec::kInt},
                     {"output_width", AttributeSpec::kInt},
                     {"sampling_ratio", AttributeSpec::kInt},
                     {"spatial_scale", AttributeSpec::kFloat}},
      .infer = InferRoiAlign,
      .lower = LowerRoiAlign};
  return op;
}

}  // namespace quench::ops
