// Where the heads of an attention lie, behind the operators that only move them.
#pragma once

#include <optional>

#include "common/ir/graph.h"

namespace quench::passes {

// A tensor of [batch, heads, steps, size], or [batch, steps, size] for one head: the columns from
// `offset` of a source of [batch, steps, columns], or a source of [batch, heads, steps, size] itself.
struct HeadView {
  ValueId source = kNone;
  int64_t offset = 0;
  Dim batch = 1, steps = 1;
  int64_t heads = 1, size = 1;
};

// Reads through Reshape, Transpose, Split, Slice, Gather of one index, Squeeze and Unsqueeze, as far as
// a source of such a form goes. `transposed`: of a tensor whose last two axes are size and steps.
// Nothing where not even the tensor itself is one.
std::optional<HeadView> FindHeads(const Graph& graph, ValueId id, bool transposed);

}  // namespace quench::passes
