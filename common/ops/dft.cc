#include "common/ops/fourier.h"

namespace quench::ops {
namespace {

bool Inverse(const OpContext& ctx) { return ctx.node().Int("inverse", 0) != 0; }
bool OneSided(const OpContext& ctx) { return ctx.node().Int("onesided", 0) != 0; }

absl::StatusOr<int> DftAxisOf(const OpContext& ctx) {
  const int rank = ctx.input(0).rank();
  int64_t axis = -2;
  if (ctx.has_input(2)) {
    const auto given = ctx.ints(2);
    if (!given || given->size() != 1)
      return ctx.UnsupportedError(
          "axis is computed at run time, it must be known when the model is compiled");
    axis = given->front();
  }
  if (axis < -rank || axis >= rank - 1 || axis == -1)
    return ctx.Error(fmt::format("axis {} is not a signal axis of rank {}", axis, rank));
  return NormalAxis(axis, rank);
}

// Points of the transform, where known before a run.
std::optional<Dim> LengthOf(const OpContext& ctx, int axis) {
  const Dim size = ctx.input(0).dims[static_cast<size_t>(axis)];
  if (!ctx.has_input(1)) {
    if (!Inverse(ctx) || !OneSided(ctx)) return size;
    return ctx.symbols().Mul(ctx.symbols().Sub(size, 1), 2);
  }
  const auto given = ctx.elements(1);
  return given && given->size() == 1 ? std::optional(given->front()) : std::nullopt;
}

absl::Status InferDFT(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 2));
  QUENCH_ASSIGN_OR_RETURN(const int axis, DftAxisOf(ctx));
  const Dim parts = ctx.input(0).dims.back();
  if (!parts.is(1) && !parts.is(2))
    return ctx.Error("the last axis must have size 1 (real) or 2 (complex)");
  if (OneSided(ctx) && (Inverse(ctx) ? !parts.is(2) : !parts.is(1))) {
    return ctx.Error("onesided takes a real signal, or its complex half spectrum when inverse");
  }
  const std::optional<Dim> length = LengthOf(ctx, axis);
  if (length && length->is_static() && length->value() < 1)
    return ctx.Error(fmt::format("dft_length is {}", length->value()));
  std::vector<Dim> dims = ctx.input(0).dims;
  const Dim points = length ? *length : ctx.RuntimeDim(0, std::nullopt);
  const bool half = OneSided(ctx) && !Inverse(ctx);
  dims[static_cast<size_t>(axis)] =
      half ? ctx.symbols().Add(ctx.symbols().FloorDiv(points, 2), 1) : points;
  dims.back() = OneSided(ctx) && Inverse(ctx) ? 1 : 2;
  ctx.SetOutput(0, ctx.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerSizesOfDFT(LowerContext& ctx) {
  SetRuntimeDim(ctx, Dim::OfSymbol(ctx.RuntimeSymbol(0)), Element(ctx, 1, 0));
  return absl::OkStatus();
}

absl::Status LowerDFT(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const int axis, DftAxisOf(ctx));
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const DataType type = loops::ComputeType(x.dtype());
  const std::optional<Dim> known = LengthOf(ctx, axis);
  const E length = known ? ctx.Extent(*known) : b.Slot(ctx.RuntimeSymbol(0));
  const Twiddles twiddles(ctx, length, type);
  const bool complex = ctx.input(0).dims.back().is(2);
  const bool real_result = OneSided(ctx) && Inverse(ctx);
  const E scale = b.Let(Inverse(ctx) ? b.F(1, type) / Cast(length, type) : b.F(1, type), "scale");
  const E spectrum = real_result ? length / b.I(2) + b.I(1) : length;
  const E count = b.Let(Min(x.dim(axis), spectrum), "count");
  std::vector<E> points = DimsOf(y);
  points.pop_back();
  b.ParallelForAll(points, [&](std::span<const E> i) {
    const std::vector<E> at(i.begin(), i.end());
    const auto signal = [&](E n) {
      const std::vector<E> place = Replaced(at, axis, n);
      const auto part = [&](int64_t which) {
        return x.At(Inserted(place, static_cast<int>(place.size()), b.I(which)));
      };
      Complex value{part(0), complex ? part(1) : E()};
      if (!real_result) return value;
      // The missing half is the conjugate: all but the first and the middle frequency count twice.
      const E once = n == b.I(0) || n * b.I(2) == length;
      const E weight = Select(once, b.F(1, type), b.F(2, type));
      return Complex{value.re * weight, value.im * weight};
    };
    const Complex sum =
        FourierSum(b, twiddles, at[static_cast<size_t>(axis)], count, Inverse(ctx), type, signal);
    const int last = static_cast<int>(at.size());
    b.Store(y, Inserted(at, last, b.I(0)), sum.re * scale);
    if (!real_result) b.Store(y, Inserted(at, last, b.I(1)), sum.im * scale);
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& DFTOp() {
  static const OpDef op = {
      .name = "DFT",
      .summary = "discrete Fourier transform along one axis",
      .min_inputs = 1,
      .max_inputs = 3,
      .attributes = {{"inverse", AttributeSpec::kInt}, {"onesided", AttributeSpec::kInt}},
      .infer = InferDFT,
      .lower = LowerDFT,
      .lower_sizes = LowerSizesOfDFT};
  return op;
}

}  // namespace quench::ops
