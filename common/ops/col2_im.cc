#include "common/ops/nest.h"

namespace quench::ops {
namespace {

struct Geometry {
  std::vector<int64_t> image, block, strides, dilations, pads;
  std::vector<int64_t> places;  // block positions along each axis
  int64_t block_size = 1;
  int64_t place_count = 1;
};

absl::Status CountPlaces(const OpContext& ctx, Geometry& g) {
  for (size_t i = 0; i < g.image.size(); ++i) {
    const bool fine = g.image[i] >= 0 && g.block[i] > 0 && g.strides[i] > 0 && g.dilations[i] > 0 &&
                      g.pads[i] >= 0 && g.pads[i + g.image.size()] >= 0;
    constexpr int64_t kLargest = int64_t{1} << 24;
    if (!fine || g.image[i] > kLargest || g.block[i] > kLargest || g.dilations[i] > kLargest ||
        g.pads[i] > kLargest || g.pads[i + g.image.size()] > kLargest) {
      return ctx.Error(
          fmt::format("sizes, strides, dilations or pads of axis {} are out of range", i));
    }
    const int64_t padded = g.image[i] + g.pads[i] + g.pads[i + g.image.size()];
    const int64_t span = padded - g.dilations[i] * (g.block[i] - 1) - 1;
    if (span < 0)
      return ctx.Error(fmt::format("the block does not fit the image along axis {}", i));
    g.places.push_back(span / g.strides[i] + 1);
    g.block_size *= g.block[i];
    g.place_count *= g.places.back();
    if (g.block_size > kLargest || g.place_count > (int64_t{1} << 40))
      return ctx.Error("image or block is too large");
  }
  return absl::OkStatus();
}

absl::StatusOr<Geometry> GeometryOf(const OpContext& ctx) {
  const auto image = ctx.ints(1);
  const auto block = ctx.ints(2);
  if (!image || !block) {
    return ctx.UnsupportedError(
        "image_shape and block_shape must be known when the model is compiled");
  }
  const size_t axes = image->size();
  Geometry g{*image,
             *block,
             ctx.node().Ints("strides"),
             ctx.node().Ints("dilations"),
             ctx.node().Ints("pads"),
             {}};
  if (g.strides.empty()) g.strides.assign(axes, 1);
  if (g.dilations.empty()) g.dilations.assign(axes, 1);
  if (g.pads.empty()) g.pads.assign(2 * axes, 0);
  if (axes < 1 || g.block.size() != axes || g.strides.size() != axes ||
      g.dilations.size() != axes || g.pads.size() != 2 * axes) {
    return ctx.Error(
        fmt::format("block_shape, strides, dilations and pads do not have {} axes", axes));
  }
  QUENCH_RETURN_IF_ERROR(CountPlaces(ctx, g));
  return g;
}

absl::Status InferCol2Im(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 3, 3));
  for (int i = 1; i <= 2; ++i) {
    QUENCH_RETURN_IF_ERROR(RequireType(ctx, i, TypeSet({DataType::kI64})));
    QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 1, 1));
  }
  QUENCH_ASSIGN_OR_RETURN(const Geometry g, GeometryOf(ctx));
  const std::vector<Dim>& x = ctx.input(0).dims;
  if (x[1].is_static() && x[1].value() % g.block_size != 0) {
    return ctx.Error(fmt::format("blocks of {} elements do not divide axis 1 of size {}",
                                 g.block_size, x[1].value()));
  }
  QUENCH_RETURN_IF_ERROR(
      RequireEqual(ctx, x[2], g.place_count, "axis 2 of the input and number of blocks"));
  std::vector<Dim> dims = {x[0], ctx.symbols().FloorDiv(x[1], g.block_size)};
  dims.insert(dims.end(), g.image.begin(), g.image.end());
  ctx.SetOutput(0, ctx.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

// Every pixel gathers from the blocks that cover it: pixel = place * stride + element * dilation -
// pad.
absl::Status LowerCol2Im(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const Geometry g, GeometryOf(ctx));
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const DataType type = loops::ComputeType(x.dtype());
  EnsureEqual(ctx, ctx.input(0).dims[2], g.place_count, "axis 2 of the input and number of blocks");
  std::vector<E> block;
  for (const int64_t size : g.block) block.push_back(b.I(size));
  b.ParallelForAll(DimsOf(y), [&](std::span<const E> i) {
    const std::vector<E> at(i.begin(), i.end());
    const E sum = b.ReduceAll(BinaryOp::kAdd, b.F(0, type), block, [&](std::span<const E> k) {
      E inside = b.Bool(true);
      E element = b.I(0);
      E place = b.I(0);
      for (size_t axis = 0; axis < g.image.size(); ++axis) {
        const E offset = at[axis + 2] + b.I(g.pads[axis]) - k[axis] * b.I(g.dilations[axis]);
        const E step = FloorDiv(offset, b.I(g.strides[axis]));
        const E last = b.I(g.places[axis] - 1);
        inside = inside && step * b.I(g.strides[axis]) == offset && step >= b.I(0) && step <= last;
        element = element * b.I(g.block[axis]) + k[axis];
        place = place * b.I(g.places[axis]) + Max(Min(step, last), b.I(0));
      }
      const E row = at[1] * b.I(g.block_size) + element;
      return Select(inside, x.At({at[0], row, place}), b.F(0, type));
    });
    b.Store(y, at, sum);
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& Col2ImOp() {
  static const OpDef op = {.name = "Col2Im",
                           .summary = "adds up columns of blocks into an image",
                           .min_inputs = 3,
                           .max_inputs = 3,
                           .attributes = {{"dilations", AttributeSpec::kInts},
                                          {"pads", AttributeSpec::kInts},
                                          {"strides", AttributeSpec::kInts}},
                           .infer = InferCol2Im,
                           .lower = LowerCol2Im};
  return op;
}

}  // namespace quench::ops
