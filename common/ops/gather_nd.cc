#include <algorithm>

#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Number of leading axes of the data that one index tuple addresses, after the batch axes.
absl::StatusOr<int> GatherNdTupleLength(const OpContext& ctx) {
  const Dim last = ctx.input(1).dims.back();
  if (!last.is_static())
    return ctx.UnsupportedError("the length of the index tuples is known only at run time");
  const int64_t batch = ctx.node().Int("batch_dims", 0);
  if (batch < 0 || batch >= std::min(ctx.input(0).rank(), ctx.input(1).rank())) {
    return ctx.Error(fmt::format("batch_dims is {}, it must be less than both ranks", batch));
  }
  if (last.value() < 0 || batch + last.value() > ctx.input(0).rank()) {
    return ctx.Error(
        fmt::format("index tuples have {} entries, the data has {} axes after {} batch axes",
                    last.value(), ctx.input(0).rank() - batch, batch));
  }
  return static_cast<int>(last.value());
}

absl::Status InferGatherND(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1));
  QUENCH_ASSIGN_OR_RETURN(const int length, GatherNdTupleLength(ctx));
  const int64_t batch = ctx.node().Int("batch_dims", 0);
  const Type& x = ctx.input(0);
  const Type& indices = ctx.input(1);
  for (int64_t axis = 0; axis < batch; ++axis) {
    const auto at = static_cast<size_t>(axis);
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, x.dims[at], indices.dims[at],
                                        fmt::format("batch axis {} of data and indices", axis)));
  }
  std::vector<Dim> dims(indices.dims.begin(), indices.dims.end() - 1);
  dims.insert(dims.end(), x.dims.begin() + batch + length, x.dims.end());
  ctx.SetOutput(0, x.dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerGatherND(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const int length, GatherNdTupleLength(ctx));
  const auto batch = static_cast<size_t>(ctx.node().Int("batch_dims", 0));
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B indices = ctx.in(1);
  const std::string what = fmt::format("node `{}`: an index of GatherND", ctx.node().name);
  for (size_t a = 0; a < batch; ++a) {
    EnsureEqual(ctx, ctx.input(0).dims[a], ctx.input(1).dims[a],
                fmt::format("batch axis {} of data and indices", a));
  }
  std::vector<E> outer = DimsOf(indices);
  outer.pop_back();
  const std::vector<E> dims = DimsOf(x);
  const std::span<const E> inner = std::span(dims).subspan(batch + static_cast<size_t>(length));
  b.ParallelForAll(outer, [&](std::span<const E> head) {
    std::vector<E> source(head.begin(), head.begin() + static_cast<int64_t>(batch));
    for (int k = 0; k < length; ++k) {
      const E raw = indices.At(Inserted(head, static_cast<int>(head.size()), b.I(k)));
      source.push_back(CheckedIndex(b, raw, dims[batch + static_cast<size_t>(k)], what));
    }
    const std::vector<E> target(head.begin(), head.end());
    b.ParallelForAll(inner, [&](std::span<const E> tail) {
      std::vector<E> from = source;
      std::vector<E> to = target;
      from.insert(from.end(), tail.begin(), tail.end());
      to.insert(to.end(), tail.begin(), tail.end());
      b.Store(ctx.out(0), to, x.At(from));
    });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& GatherNDOp() {
  static const OpDef op = {.name = "GatherND",
                           .summary = "picks slices by index tuples",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .attributes = {{"batch_dims", AttributeSpec::kInt}},
                           .quant = QuantRole::kPassThrough,
                           .infer = InferGatherND,
                           .lower = LowerGatherND};
  return op;
}

}  // namespace quench::ops
