#include "common/ops/fourier.h"

namespace quench::ops {
namespace {

// Length of a frame and the step between frames: both shape the output, so both must be known
// before a run.
absl::StatusOr<std::pair<Dim, Dim>> FrameOf(const OpContext& ctx) {
  const auto step = ctx.elements(1);
  if (!step || step->size() != 1)
    return ctx.UnsupportedError("frame_step must be known when the model is compiled");
  if (step->front().is_static() && step->front().value() < 1)
    return ctx.Error(fmt::format("frame_step is {}", step->front().value()));
  Dim length = ctx.has_input(2) ? ctx.input(2).dims[0] : ctx.input(0).dims[1];
  if (ctx.has_input(3)) {
    const auto given = ctx.elements(3);
    if (!given || given->size() != 1)
      return ctx.UnsupportedError("frame_length must be known when the model is compiled");
    length = given->front();
    if (ctx.has_input(2))
      QUENCH_RETURN_IF_ERROR(
          RequireEqual(ctx, length, ctx.input(2).dims[0], "frame_length and length of the window"));
  }
  if (length.is_static() && length.value() < 1)
    return ctx.Error(fmt::format("frame_length is {}", length.value()));
  return std::pair(length, step->front());
}

absl::Status InferSTFT(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {0, 2}));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 3, 3));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 2, 1, 1));
  for (const int i : {1, 3}) QUENCH_RETURN_IF_ERROR(RequireType(ctx, i, kIndexTypes));
  const std::vector<Dim>& signal = ctx.input(0).dims;
  const bool one_sided = ctx.node().Int("onesided", 1) != 0;
  if (!signal[2].is(1) && !signal[2].is(2))
    return ctx.Error("the last axis must have size 1 (real) or 2 (complex)");
  if (one_sided && signal[2].is(2)) return ctx.Error("onesided takes a real signal");
  QUENCH_ASSIGN_OR_RETURN(const auto frame, FrameOf(ctx));
  const auto [length, step] = frame;
  if (signal[1].is_static() && length.is_static() && length.value() > signal[1].value()) {
    return ctx.Error(
        fmt::format("frames of {} do not fit a signal of {}", length.value(), signal[1].value()));
  }
  SymbolTable& symbols = ctx.symbols();
  const Dim frames = symbols.Add(symbols.FloorDiv(symbols.Sub(signal[1], length), step), 1);
  const Dim bins = one_sided ? symbols.Add(symbols.FloorDiv(length, 2), 1) : length;
  ctx.SetOutput(0, ctx.input(0).dtype, {signal[0], frames, bins, 2});
  return absl::OkStatus();
}

absl::Status LowerSTFT(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const auto frame, FrameOf(ctx));
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const DataType type = loops::ComputeType(x.dtype());
  const E length = ctx.Extent(frame.first);
  const E step = ctx.Extent(frame.second);
  if (ctx.has_input(2))
    EnsureEqual(ctx, ctx.input(2).dims[0], frame.first, "frame_length and length of the window");
  const Twiddles twiddles(ctx, length, type);
  const bool complex = ctx.input(0).dims[2].is(2);
  b.ParallelForAll(std::vector<E>{y.dim(0), y.dim(1), y.dim(2)}, [&](std::span<const E> i) {
    const E n = i[0];
    const E at = i[1];
    const E k = i[2];
    const auto signal = [&](E t) {
      const auto part = [&](int64_t which) {
        const E value = x.At({n, at * step + t, b.I(which)});
        return ctx.has_input(2) ? value * ctx.in(2).At({t}) : value;
      };
      return Complex{part(0), complex ? part(1) : E()};
    };
    const Complex sum = FourierSum(b, twiddles, k, length, /*inverse=*/false, type, signal);
    b.Store(y, {n, at, k, b.I(0)}, sum.re);
    b.Store(y, {n, at, k, b.I(1)}, sum.im);
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& STFTOp() {
  static const OpDef op = {.name = "STFT",
                           .summary = "Fourier transforms of windowed frames of a signal",
                           .min_inputs = 2,
                           .max_inputs = 4,
                           .attributes = {{"onesided", AttributeSpec::kInt}},
                           .infer = InferSTFT,
                           .lower = LowerSTFT};
  return op;
}

}  // namespace quench::ops
