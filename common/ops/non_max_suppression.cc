#include <algorithm>

#include "common/ops/sorting.h"

namespace quench::ops {
namespace {

absl::Status InferNonMaxSuppression(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, TypeSet({DataType::kF32})));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kF32})));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 2, TypeSet({DataType::kI64})));
  for (int i = 0; i < 2; ++i) QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 3, 3));
  for (int i = 2; i < 5; ++i) QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 0, 1));
  const std::vector<Dim>& boxes = ctx.input(0).dims;
  const std::vector<Dim>& scores = ctx.input(1).dims;
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, boxes[0], scores[0], "batch of boxes and scores"));
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, boxes[1], scores[2], "number of boxes and scores"));
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, boxes[2], 4, "coordinates of a box and 4"));
  const int64_t center = ctx.node().Int("center_point_box", 0);
  if (center != 0 && center != 1)
    return ctx.Error(fmt::format("center_point_box is {}, it is 0 or 1", center));
  SymbolTable& symbols = ctx.symbols();
  Dim each = scores[2];
  if (const auto limit = ctx.ints(2); limit && limit->size() == 1)
    each = symbols.Min(each, std::max<int64_t>(limit->front(), 0));
  const Dim upper = symbols.Product(std::vector<Dim>{scores[0], scores[1], each});
  ctx.SetOutput(0, DataType::kI64, {ctx.RuntimeDim(0, upper), 3});
  return absl::OkStatus();
}

E ScalarInput(LowerContext& ctx, int i) {
  return ctx.in(i).At(std::vector<E>(static_cast<size_t>(ctx.in(i).rank()), ctx.b().I(0)));
}

struct Box {
  E y1, x1, y2, x2;
};

Box BoxAt(LowerContext& ctx, E batch, E index) {
  Builder& b = ctx.b();
  std::vector<E> c;
  for (int k = 0; k < 4; ++k) c.push_back(b.Let(ctx.in(0).At({batch, index, b.I(k)}), "c"));
  if (ctx.node().Int("center_point_box", 0) == 1) {  // x, y, width, height
    return {c[1] - c[3] * 0.5, c[0] - c[2] * 0.5, c[1] + c[3] * 0.5, c[0] + c[2] * 0.5};
  }
  return {Min(c[0], c[2]), Min(c[1], c[3]), Max(c[0], c[2]),
          Max(c[1], c[3])};  // any two opposite corners
}

// intersection / union > threshold; boxes without area never overlap.
E Overlaps(Builder& b, const Box& p, const Box& q, E threshold) {
  const E zero = b.F(0, DataType::kF32);
  const E height = Max(Min(p.y2, q.y2) - Max(p.y1, q.y1), zero);
  const E width = Max(Min(p.x2, q.x2) - Max(p.x1, q.x1), zero);
  const E shared = b.Let(height * width, "shared");
  const E area_p = b.Let((p.y2 - p.y1) * (p.x2 - p.x1), "area_p");
  const E area_q = b.Let((q.y2 - q.y1) * (q.x2 - q.x1), "area_q");
  return area_p > zero && area_q > zero && shared / (area_p + area_q - shared) > threshold;
}

// Runs the selection and calls `selected(batch, class, index, position)` for each result in order.
// Returns the count.
E SelectBoxes(LowerContext& ctx, const std::function<void(E, E, E, E)>& selected) {
  Builder& b = ctx.b();
  const B scores = ctx.in(1);
  const E boxes = scores.dim(2);
  EnsureEqual(ctx, ctx.input(0).dims[0], ctx.input(1).dims[0], "batch of boxes and scores");
  EnsureEqual(ctx, ctx.input(0).dims[1], ctx.input(1).dims[2], "number of boxes and scores");
  const E limit = b.Let(ctx.has_input(2) ? ScalarInput(ctx, 2) : b.I(0), "limit");
  const E overlap =
      b.Let(ctx.has_input(3) ? ScalarInput(ctx, 3) : b.F(0, DataType::kF32), "overlap");
  const SortScratch order = MakeSortScratch(b, boxes, loops::ScratchScope::kFunction);
  const B kept = b.Scratch("kept", DataType::kI64, {boxes}, loops::ScratchScope::kFunction);
  const auto total = b.Local(b.I(0), "total");
  SerialForAll(b, std::vector<E>{scores.dim(0), scores.dim(1)}, [&](std::span<const E> at) {
    const E batch = at[0];
    const E category = at[1];
    const auto score = [&](E i) { return scores.At({batch, category, i}); };
    const E side = SortIndices(b, order, boxes, [&](E i, E j) { return score(i) > score(j); });
    const auto count = b.Local(b.I(0), "count");
    b.For(boxes, [&](E k) {
      const E index = b.Let(order.items.At({side, k}), "index");
      E candidate = count.Get() < limit;
      if (ctx.has_input(4)) candidate = candidate && score(index) > ScalarInput(ctx, 4);
      b.If(candidate, [&] {
        const Box box = BoxAt(ctx, batch, index);
        const auto next = b.Local(b.I(0), "next");
        const auto free = b.Local(b.Bool(true), "free");
        b.While([&] { return next.Get() < count.Get() && free.Get(); },
                [&] {
                  const E other = b.Let(kept.At({next.Get()}), "other");
                  free.Set(!Overlaps(b, box, BoxAt(ctx, batch, other), overlap));
                  next.Set(next.Get() + b.I(1));
                });
        b.If(free.Get(), [&] {
          b.Store(kept, {count.Get()}, index);
          count.Set(count.Get() + b.I(1));
          selected(batch, category, index, total.Get());
          total.Set(total.Get() + b.I(1));
        });
      });
    });
  });
  return total.Get();
}

absl::Status LowerSizesOfNonMaxSuppression(LowerContext& ctx) {
  const E count = SelectBoxes(ctx, [](E, E, E, E) {});
  SetRuntimeDim(ctx, ctx.output(0).dims[0], count);
  return absl::OkStatus();
}

absl::Status LowerNonMaxSuppression(LowerContext& ctx) {
  Builder& b = ctx.b();
  SelectBoxes(ctx, [&](E batch, E category, E index, E position) {
    b.Store(ctx.out(0), {position, b.I(0)}, batch);
    b.Store(ctx.out(0), {position, b.I(1)}, category);
    b.Store(ctx.out(0), {position, b.I(2)}, index);
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& NonMaxSuppressionOp() {
  static const OpDef op = {.name = "NonMaxSuppression",
                           .summary = "the best boxes of each class that do not overlap",
                           .min_inputs = 2,
                           .max_inputs = 5,
                           .attributes = {{"center_point_box", AttributeSpec::kInt}},
                           .infer = InferNonMaxSuppression,
                           .lower = LowerNonMaxSuppression,
                           .lower_sizes = LowerSizesOfNonMaxSuppression};
  return op;
}

}  // namespace quench::ops
