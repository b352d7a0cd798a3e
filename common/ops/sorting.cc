#include "common/ops/sorting.h"

namespace quench::ops {
namespace {

// Merges [left, middle) and [middle, right) of row `side` into row 1 - side.
void Merge(Builder& b, B items, E side, E left, E middle, E right,
           const std::function<E(E, E)>& before) {
  const auto i = b.Local(left, "i");
  const auto j = b.Local(middle, "j");
  b.For(left, right, [&](E k) {
    // Both loads are in range whatever is taken: the last valid place stands in for an exhausted
    // run.
    const E a = b.Let(items.At({side, Min(i.Get(), right - b.I(1))}), "a");
    const E c = b.Let(items.At({side, Min(j.Get(), right - b.I(1))}), "c");
    const E take_right =
        b.Let(j.Get() < right && (i.Get() >= middle || before(c, a)), "take_right");
    b.Store(items, {b.I(1) - side, k}, Select(take_right, c, a));
    i.Set(Select(take_right, i.Get(), i.Get() + b.I(1)));
    j.Set(Select(take_right, j.Get() + b.I(1), j.Get()));
  });
}

}  // namespace

SortScratch MakeSortScratch(Builder& b, E capacity, loops::ScratchScope scope) {
  return {b.Scratch("order", DataType::kI64, {b.I(2), capacity}, scope)};
}

E SortIndices(Builder& b, const SortScratch& scratch, E count,
              const std::function<E(E, E)>& before) {
  const B items = scratch.items;
  b.For(count, [&](E k) { b.Store(items, {b.I(0), k}, k); });
  const auto side = b.Local(b.I(0), "side");
  const auto width = b.Local(b.I(1), "width");
  b.While([&] { return width.Get() < count; },
          [&] {
            const E from = b.Let(side.Get(), "from");
            const E run = b.Let(width.Get(), "run");
            b.For(CeilDiv(count, run * b.I(2)), [&](E pair) {
              const E left = b.Let(pair * run * b.I(2), "left");
              const E middle = b.Let(Min(left + run, count), "middle");
              const E right = b.Let(Min(middle + run, count), "right");
              Merge(b, items, from, left, middle, right, before);
            });
            side.Set(b.I(1) - from);
            width.Set(run * b.I(2));
          });
  return b.Let(side.Get(), "sorted");
}

}  // namespace quench::ops
