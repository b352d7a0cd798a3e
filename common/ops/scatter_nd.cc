#include "common/ops/scatter_common.h"

namespace quench::ops {
namespace {

absl::StatusOr<int> TupleLength(const OpContext& ctx) {
  const Dim last = ctx.input(1).dims.back();
  if (!last.is_static())
    return ctx.UnsupportedError("the length of the index tuples is known only at run time");
  if (last.value() > ctx.input(0).rank()) {
    return ctx.Error(fmt::format("index tuples have {} entries, the data has rank {}", last.value(),
                                 ctx.input(0).rank()));
  }
  return static_cast<int>(last.value());
}

// One slice of the data per index tuple.
std::vector<Dim> UpdateDims(const OpContext& ctx, int length) {
  std::vector<Dim> dims(ctx.input(1).dims.begin(), ctx.input(1).dims.end() - 1);
  dims.insert(dims.end(), ctx.input(0).dims.begin() + length, ctx.input(0).dims.end());
  return dims;
}

absl::Status InferScatterND(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {0, 2}));
  QUENCH_RETURN_IF_ERROR(ScatterReduction(ctx).status());
  QUENCH_ASSIGN_OR_RETURN(const int length, TupleLength(ctx));
  const Type& x = ctx.input(0);
  const std::vector<Dim> expected = UpdateDims(ctx, length);
  const int rank = static_cast<int>(expected.size());
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 2, rank, rank));
  for (size_t a = 0; a < expected.size(); ++a) {
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(ctx, ctx.input(2).dims[a], expected[a],
                     fmt::format("axis {} of the updates and what indices and data give", a)));
  }
  ctx.SetOutput(0, x.dtype, x.dims);
  return absl::OkStatus();
}

// Index tuples may repeat, so they are taken in order; the elements of a slice are independent.
absl::Status LowerScatterND(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const int length, TupleLength(ctx));
  QUENCH_ASSIGN_OR_RETURN(const std::optional<BinaryOp> reduction, ScatterReduction(ctx));
  const std::vector<Dim> updates = UpdateDims(ctx, length);
  for (size_t a = 0; a < updates.size(); ++a) {
    EnsureEqual(ctx, ctx.input(2).dims[a], updates[a],
                fmt::format("sizes of axis {} of the updates and what indices and data give", a));
  }
  Builder& b = ctx.b();
  const B indices = ctx.in(1);
  const B y = ctx.out(0);
  const std::string what = fmt::format("node `{}`: an index of ScatterND", ctx.node().name);
  std::vector<E> outer = DimsOf(indices);
  outer.pop_back();
  const std::vector<E> dims = DimsOf(y);
  SerialForAll(b, outer, [&](std::span<const E> tuple) {
    std::vector<E> target;
    for (int k = 0; k < length; ++k) {
      const E raw = indices.At(Inserted(tuple, static_cast<int>(tuple.size()), b.I(k)));
      target.push_back(CheckedIndex(b, raw, dims[static_cast<size_t>(k)], what));
    }
    const std::vector<E> source(tuple.begin(), tuple.end());
    b.ParallelForAll(std::span(dims).subspan(static_cast<size_t>(length)),
                     [&](std::span<const E> tail) {
                       std::vector<E> to = target;
                       std::vector<E> from = source;
                       to.insert(to.end(), tail.begin(), tail.end());
                       from.insert(from.end(), tail.begin(), tail.end());
                       ScatterStore(b, y, to, reduction, ctx.in(2).At(from));
                     });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& ScatterNDOp() {
  static const OpDef op = {.name = "ScatterND",
                           .summary = "writes slices at index tuples into a copy",
                           .min_inputs = 3,
                           .max_inputs = 3,
                           .attributes = {{"reduction", AttributeSpec::kString}},
                           .infer = InferScatterND,
                           .lower = LowerScatterND,
                           .updates = true};
  return op;
}

}  // namespace quench::ops
