// Values that a model carries from one run to the next, as an output and an input each: metadata.h.
#pragma once

#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench {

struct StatePair {
  size_t input = 0, output = 0;  // indices in Graph::inputs and outputs
  Tensor initial;                // one element; empty: zeros
};

// States of which the graph still has both ends, with one type whose sizes are fixed and whose
// elements are whole bytes, in the order of the inputs. Others are the caller's to carry.
std::vector<StatePair> StatesOf(const Graph& graph);

// A tensor of this type for the first run. Sizes are fixed.
Tensor InitialState(const Type& type, const Tensor& initial);

}  // namespace quench
