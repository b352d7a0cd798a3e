#include "common/ops/heads.h"

namespace quench::ops {
namespace {

// Number of leading elements of a head that are rotated.
absl::StatusOr<int64_t> RotatedSize(const OpContext& ctx, const HeadDims& x) {
  const int64_t given = ctx.node().Int("rotary_embedding_dim", 0);
  if (!x.size.is_static()) return ctx.UnsupportedError("the head size is known only at run time");
  const int64_t rotated = given == 0 ? x.size.value() : given;
  if (rotated < 2 || rotated % 2 != 0 || rotated > x.size.value()) {
    return ctx.Error(fmt::format("{} elements of a head of {} cannot be rotated in pairs", rotated,
                                 x.size.value()));
  }
  return rotated;
}

absl::Status InferRotaryEmbedding(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {0, 1, 2}));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 3, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 3, 2, 2));
  QUENCH_ASSIGN_OR_RETURN(const HeadDims x, HeadDimsOf(ctx, 0, ctx.node().Int("num_heads", 0)));
  QUENCH_ASSIGN_OR_RETURN(const int64_t rotated, RotatedSize(ctx, x));
  const int rank = ctx.has_input(3) ? 2 : 3;
  for (int i = 1; i <= 2; ++i) {
    QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, rank, rank));
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, ctx.input(i).dims.back(), rotated / 2,
                                        fmt::format("last axis of input {} and rotated pairs", i)));
  }
  ctx.SetOutput(0, ctx.input(0).dtype, ctx.input(0).dims);
  return absl::OkStatus();
}

absl::Status LowerRotaryEmbedding(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const HeadDims dims, HeadDimsOf(ctx, 0, ctx.node().Int("num_heads", 0)));
  QUENCH_ASSIGN_OR_RETURN(const int64_t rotated, RotatedSize(ctx, dims));
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const bool interleaved = ctx.node().Int("interleaved", 0) != 0;
  const E size = ctx.Extent(dims.size);
  const std::vector<Dim> places = {dims.batch, dims.sequence};
  for (size_t axis = 0; axis < 2; ++axis) {
    const std::string what = fmt::format("axis {} of the positions and X", axis);
    if (ctx.has_input(3)) EnsureEqual(ctx, ctx.input(3).dims[axis], places[axis], what);
    if (!ctx.has_input(3)) EnsureEqual(ctx, ctx.input(1).dims[axis], places[axis], what);
    if (!ctx.has_input(3)) EnsureEqual(ctx, ctx.input(2).dims[axis], places[axis], what);
  }
  if (ctx.has_input(3))
    EnsureEqual(ctx, ctx.input(1).dims[0], ctx.input(2).dims[0], "lengths of the caches");
  b.ParallelForAll(
      std::vector<E>{ctx.Extent(dims.batch), ctx.Extent(dims.sequence), ctx.Extent(dims.heads)},
      [&](std::span<const E> at) {
        const E n = at[0];
        const E s = at[1];
        const E h = at[2];
        E place;
        if (ctx.has_input(3))
          place = CheckedIndex(b, ctx.in(3).At({n, s}), ctx.in(1).dim(0),
                               fmt::format("node `{}`: a position", ctx.node().name));
        const auto angle = [&](int input, E k) {
          return place.valid() ? ctx.in(input).At({place, k}) : ctx.in(input).At({n, s, k});
        };
        const auto index = [&](E k) { return HeadIndex(x.rank(), n, h, s, k, size); };
        b.ParallelFor(b.I(rotated / 2), [&](E k) {
          const E first = interleaved ? k * b.I(2) : k;
          const E second = interleaved ? k * b.I(2) + b.I(1) : k + b.I(rotated / 2);
          const E re = b.Let(x.At(index(first)), "re");
          const E im = b.Let(x.At(index(second)), "im");
          const E cosine = b.Let(angle(1, k), "cos");
          const E sine = b.Let(angle(2, k), "sin");
          b.Store(y, index(first), cosine * re - sine * im);
          b.Store(y, index(second), sine * re + cosine * im);
        });
        b.ParallelFor(b.I(dims.size.value() - rotated), [&](E k) {
          b.Store(y, index(k + b.I(rotated)), x.At(index(k + b.I(rotated))));
        });
      });
  return absl::OkStatus();
}

}  // namespace

const OpDef& RotaryEmbeddingOp() {
  static const OpDef op = {.name = "RotaryEmbedding",
                           .summary = "rotates pairs of elements by the angle of their position",
                           .min_inputs = 3,
                           .max_inputs = 4,
                           .attributes = {{"interleaved", AttributeSpec::kInt},
                                          {"num_heads", AttributeSpec::kInt},
                                          {"rotary_embedding_dim", AttributeSpec::kInt}},
                           .infer = InferRotaryEmbedding,
                           .lower = LowerRotaryEmbedding};
  return op;
}

}  // namespace quench::ops
