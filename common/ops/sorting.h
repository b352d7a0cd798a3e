// Stable sorting inside loops IR.
#pragma once

#include <functional>

#include "common/ops/nest.h"

namespace quench::ops {

// Scratch that holds a permutation: `items` [2, capacity] of i64; row `side` is the current one
// after sorting.
struct SortScratch {
  B items;
};
SortScratch MakeSortScratch(Builder& b, E capacity, loops::ScratchScope scope);

// Sorts 0 .. count-1 so that before(a, b) holds from left to right; equal ones keep their order.
// `before(a, b)` must be strict and may use loads only. Bottom-up merge sort: O(n log n) for every
// input. Returns the row of `scratch.items` that holds the result (an i64 local's value: use it
// after the call, in the same scope).
E SortIndices(Builder& b, const SortScratch& scratch, E count,
              const std::function<E(E, E)>& before);

}  // namespace quench::ops
