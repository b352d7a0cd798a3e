#include "common/ops/nest.h"

namespace quench::ops {
namespace {

struct Options {
  std::string mode;     // linear, nearest, cubic
  std::string padding;  // zeros, border, reflection
  bool align = false;
};

absl::StatusOr<Options> ReadOptions(const OpContext& ctx) {
  Options options{ctx.node().String("mode", "linear"), ctx.node().String("padding_mode", "zeros"),
                  ctx.node().Int("align_corners", 0) != 0};
  if (options.mode != "linear" && options.mode != "nearest" && options.mode != "cubic") {
    return ctx.Error(
        fmt::format("mode is `{}`, GridSample has linear, nearest and cubic", options.mode));
  }
  if (options.padding != "zeros" && options.padding != "border" &&
      options.padding != "reflection") {
    return ctx.Error(
        fmt::format("padding_mode is `{}`, it is zeros, border or reflection", options.padding));
  }
  return options;
}

absl::Status InferGridSample(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 3, 5));
  const Type& x = ctx.input(0);
  const Type& grid = ctx.input(1);
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, x.rank(), x.rank()));
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, grid.dims[0], x.dims[0], "batch of input and grid"));
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, grid.dims.back(), x.rank() - 2,
                                      "coordinates of a grid point and spatial axes"));
  QUENCH_ASSIGN_OR_RETURN(const Options options, ReadOptions(ctx));
  if (options.mode == "cubic" && x.rank() > 4)
    return ctx.UnsupportedError("cubic sampling of 3 spatial axes");
  std::vector<Dim> dims = {x.dims[0], x.dims[1]};
  dims.insert(dims.end(), grid.dims.begin() + 1, grid.dims.end() - 1);
  ctx.SetOutput(0, x.dtype, std::move(dims));
  return absl::OkStatus();
}

// The samples one axis contributes: places (before padding) and weights.
struct Taps {
  std::vector<E> place;
  std::vector<E> weight;
};

// Weights of Keys' cubic with a = -0.75 at distances 1 + t, t, 1 - t, 2 - t.
std::vector<E> CubicWeights(E t) {
  constexpr double a = -0.75;
  const auto far = [](E d) { return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a; };
  const auto near = [](E d) { return (d * (a + 2) - (a + 3)) * d * d + 1.0; };
  const E one = ConstantLike(t, 1);
  return {far(t + 1.0), near(t), near(one - t), far(one - t + 1.0)};
}

Taps TapsOf(Builder& b, const Options& options, E coordinate, E size) {
  const DataType type = coordinate.type();
  const E extent = Cast(size, type);
  E x = (coordinate + 1.0) * 0.5;
  x = b.Let(options.align ? x * (extent - 1.0) : x * extent - 0.5, "x");
  if (options.mode == "nearest") {
    return {{b.Let(Cast(Unary(UnaryOp::kRoundEven, x), DataType::kI64), "place")}, {b.F(1, type)}};
  }
  const E floor = b.Let(Unary(UnaryOp::kFloor, x), "floor");
  const E left = b.Let(Cast(floor, DataType::kI64), "left");
  const E t = b.Let(x - floor, "t");
  if (options.mode == "linear") return {{left, left + b.I(1)}, {b.F(1, type) - t, t}};
  Taps taps;
  taps.weight = CubicWeights(t);
  for (int k = -1; k <= 2; ++k) taps.place.push_back(left + b.I(k));
  return taps;
}

// A place inside the axis, and whether the sample counts (invalid: always).
std::pair<E, E> Padded(Builder& b, const Options& options, E place, E size) {
  const E last = size - b.I(1);
  const E clamped = Max(Min(place, last), b.I(0));
  if (options.padding == "border") return {clamped, E()};
  if (options.padding == "zeros") return {clamped, place == clamped};
  if (options.align) {  // mirrored at the centres of the outer elements; period 0 for one element
    const E phase = FloorMod(place, last * b.I(2));
    return {Min(phase, last * b.I(2) - phase), E()};
  }
  const E phase = FloorMod(place, size * b.I(2));  // mirrored at the outer edges
  return {Min(phase, size * b.I(2) - b.I(1) - phase), E()};
}

// One corner of the sampled cell: where it lies and its weight.
struct Corner {
  std::vector<E> at;
  E weight;
};

std::vector<Corner> CornersOf(LowerContext& ctx, const Options& options, std::span<const E> point,
                              DataType type) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  std::vector<Corner> corners = {{{}, E()}};
  const int axes = x.rank() - 2;
  for (int axis = 0; axis < axes; ++axis) {
    std::vector<E> at(point.begin(), point.end());
    at.push_back(b.I(axes - 1 - axis));  // the grid lists the last axis first
    const Taps taps = TapsOf(b, options, Cast(ctx.in(1).At(at), type), x.dim(axis + 2));
    std::vector<Corner> next;
    for (const Corner& corner : corners) {
      for (size_t k = 0; k < taps.place.size(); ++k) {
        const auto [place, counts] = Padded(b, options, taps.place[k], x.dim(axis + 2));
        Corner grown = corner;
        grown.at.push_back(place);
        const E weight =
            counts.valid() ? Select(counts, taps.weight[k], b.F(0, type)) : taps.weight[k];
        grown.weight = corner.weight.valid() ? corner.weight * weight : weight;
        next.push_back(std::move(grown));
      }
    }
    corners = std::move(next);
  }
  for (Corner& corner : corners) {
    for (E& place : corner.at) place = b.Let(place, "place");
    corner.weight = b.Let(corner.weight, "weight");
  }
  return corners;
}

absl::Status LowerGridSample(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const Options options, ReadOptions(ctx));
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const DataType type = loops::ComputeType(x.dtype());
  EnsureEqual(ctx, ctx.input(0).dims[0], ctx.input(1).dims[0], "batch of input and grid");
  for (int axis = 2; axis < x.rank(); ++axis) {
    b.Check(x.dim(axis) > b.I(0),
            fmt::format("node `{}`: GridSample of an empty axis", ctx.node().name));
  }
  b.ParallelForAll(Erased(DimsOf(y), 1), [&](std::span<const E> point) {
    const std::vector<E> at(point.begin(), point.end());
    const std::vector<Corner> corners = CornersOf(ctx, options, at, type);
    b.ParallelFor(
        x.dim(1),
        [&](E channel) {
          E sum;
          for (const Corner& corner : corners) {
            std::vector<E> source = {at[0], channel};
            source.insert(source.end(), corner.at.begin(), corner.at.end());
            const E term = corner.weight * x.At(source);
            sum = sum.valid() ? sum + term : term;
          }
          b.Store(y, Inserted(at, 1, channel), sum);
        },
        "c");
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& GridSampleOp() {
  static const OpDef op = {.name = "GridSample",
                           .summary = "samples a tensor at the points of a grid",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .attributes = {{"align_corners", AttributeSpec::kInt},
                                          {"mode", AttributeSpec::kString},
                                          {"padding_mode", AttributeSpec::kString}},
                           .infer = InferGridSample,
                           .lower = LowerGridSample};
  return op;
}

}  // namespace quench::ops
