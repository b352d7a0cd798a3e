// Operands of attention as matrices take them: words of two halves in scratch.
#pragma once

#include <functional>
#include <vector>

#include "services/codegen/kernels/attention_plan.h"

namespace quench::codegen {

class AttentionHalves {
 public:
  AttentionHalves(VectorBuilder& b, const AttentionPlan& plan)
      : b_(b), plan_(plan), vector_(int64_t{4} * plan.lanes) {}

  // `keys` up to the end of a step.
  Int Padded(Int keys) const { return (keys + (plan_.kStep - 1)) / plan_.kStep * plan_.kStep; }

  // Vector `v` of the `vectors` of a tile of keys, [words][vectors][lanes of keys]; `keys` point to the
  // lanes' first numbers.
  void PackKeys(Ptr tile, int vectors, int v, const std::vector<Ptr>& keys);
  // Vector `v` of a tile of values, [pairs of keys][vectors][lanes], for `keys` keys up to the end of their step;
  // those that are not there are 0. The value of key 0 is at `from`, that of the next one `step` bytes later, and
  // `columns` of its lanes are there.
  void PackValues(Ptr tile, int vectors, int v, Ptr from, int64_t step, Int keys, Int columns);
  // A query or a key in words, zeros behind them.
  void PackQuery(Ptr from, Ptr to);

  // Rows of a product, of a run of halves.
  MicroReduction Reduction(Int halves) const;

 private:
  VectorBuilder& b_;
  const AttentionPlan& plan_;
  const int64_t vector_;  // bytes
};

}  // namespace quench::codegen
