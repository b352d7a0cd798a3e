#include "common/ops/normalization_common.h"

namespace quench::ops {

absl::StatusOr<DataType> StashType(const OpContext& ctx) {
  const int64_t number = ctx.node().Int("stash_type", 1);
  const auto type = static_cast<DataType>(number);
  if (number < 1 || number >= kDataTypeCount || !Contains(kFloatTypes, type)) {
    return ctx.Error(fmt::format("stash_type is {}, it must be a float type", number));
  }
  return type;
}

absl::Status InferTailNormalization(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {1, 2}));
  const Type& x = ctx.input(0);
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  QUENCH_RETURN_IF_ERROR(ctx.Axis(ctx.node().Int("axis", -1), x.rank()).status());
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    if (!ctx.has_input(i)) continue;
    QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 0, x.rank()));
    QUENCH_ASSIGN_OR_RETURN(
        const std::vector<Dim> wide,
        ctx.Broadcast(std::vector<std::vector<Dim>>{x.dims, ctx.input(i).dims}));
    for (size_t axis = 0; axis < wide.size(); ++axis) {
      if (x.dims[axis].is_static() && wide[axis] != x.dims[axis]) {
        return ctx.Error(fmt::format("input {} {} does not broadcast to {}", i,
                                     ToString(ctx, ctx.input(i).dims), ToString(ctx, x.dims)));
      }
    }
  }
  ctx.SetOutput(0, x.dtype, x.dims);
  return absl::OkStatus();
}

E TailRow::Sum(const std::function<E(E)>& element) const {
  return b.ReduceAll(BinaryOp::kAdd, b.F(0, type), extents,
                     [&](std::span<const E> k) { return element(at(k)); });
}

void LowerTailNormalization(LowerContext& ctx,
                            const std::function<std::function<E(E)>(const TailRow&)>& statistics) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const auto axis = static_cast<size_t>(NormalAxis(ctx.node().Int("axis", -1), x.rank()));
  const DataType type = loops::ComputeType(StashType(ctx).value());  // `infer` has checked it
  const DataType result = loops::ComputeType(y.dtype());
  const std::span<const Dim> to(ctx.input(0).dims);
  const BroadcastLoad scale = BroadcastLoad::RightAligned(ctx, 1, to);
  const BroadcastLoad bias =
      ctx.has_input(2) ? BroadcastLoad::RightAligned(ctx, 2, to) : BroadcastLoad();
  const std::vector<E> dims = DimsOf(x);
  const std::vector<E> tail(dims.begin() + static_cast<int64_t>(axis), dims.end());
  b.ParallelForAll(std::span(dims).first(axis), [&](std::span<const E> outer) {
    const std::vector<E> head(outer.begin(), outer.end());
    const auto full = [&](std::span<const E> k) {
      std::vector<E> index = head;
      index.insert(index.end(), k.begin(), k.end());
      return index;
    };
    std::vector<E> position = head;
    position.resize(dims.size(), b.I(0));
    const TailRow row{b, tail, position, type,
                      [&](std::span<const E> k) { return Cast(x.At(full(k)), type); }};
    const std::function<E(E)> normalised = statistics(row);
    b.ParallelForAll(tail, [&](std::span<const E> k) {
      const std::vector<E> index = full(k);
      E value = Cast(normalised(row.at(k)), result) * Cast(scale.At(index), result);
      if (bias.valid()) value = value + Cast(bias.At(index), result);
      b.Store(y, index, value);
    });
  });
}

void LowerGroupNormalization(LowerContext& ctx, E groups, E channels_per_group, DataType type) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const DataType result = loops::ComputeType(y.dtype());
  std::vector<E> extents = {channels_per_group};
  for (int axis = 2; axis < x.rank(); ++axis) extents.push_back(x.dim(axis));
  b.ParallelForAll(std::vector<E>{x.dim(0), groups}, [&](std::span<const E> outer) {
    const E n = outer[0];
    const E first = b.Let(outer[1] * channels_per_group, "first");
    const auto full = [&](std::span<const E> k) {
      std::vector<E> index = {n, first + k[0]};
      index.insert(index.end(), k.begin() + 1, k.end());
      return index;
    };
    // A plane has up to millions of elements, often far from zero beside their deviation: a running
    // f32 sum loses what makes the result.
    const DataType wide = type == DataType::kF32 ? DataType::kF64 : type;
    const E count = b.Let(Cast(ProductOf(b, extents), wide), "count");
    const auto sum = [&](const std::function<E(std::span<const E>)>& element) {
      return b.ReduceAll(BinaryOp::kAdd, b.F(0, wide), extents,
                         [&](std::span<const E> k) { return Cast(element(k), wide); });
    };
    const auto load = [&](std::span<const E> k) { return Cast(x.At(full(k)), type); };
    const E mean = b.Let(sum(load) / count, "mean");
    // In two parts, so that the differences lose nothing though they are `type`.
    const E upper = b.Let(Cast(mean, type), "upper");
    const E lower = b.Let(Cast(mean - Cast(upper, wide), type), "lower");
    const auto centred = [&](std::span<const E> k) { return load(k) - upper - lower; };
    const auto square = [&](std::span<const E> k) { return centred(k) * centred(k); };
    const E variance = sum(square) / count;
    const E epsilon = b.F(ctx.node().Float("epsilon", 1e-5), wide);
    const E deviation = Unary(UnaryOp::kSqrt, variance + epsilon);
    const E inverse = b.Let(Cast(b.F(1, wide) / deviation, type), "inverse");
    b.ParallelForAll(extents, [&](std::span<const E> k) {
      const std::vector<E> index = full(k);
      const E normalised = Cast(centred(k) * inverse, result);
      b.Store(y, index, normalised * ctx.in(1).At({index[1]}) + ctx.in(2).At({index[1]}));
    });
  });
}

}  // namespace quench::ops
