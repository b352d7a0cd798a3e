// Graphs whose values are a little off: what rounding does to results.
#pragma once

#include <cstdint>

#include "common/ir/graph.h"

namespace quench::passes {

// `graph`, bodies included, where each float that is an input or a node's result is multiplied by a number
// within `by` of 1, another one for each value: an output that moves far is decided by rounding. Equal
// arguments give equal graphs.
Graph WithRounding(const Graph& graph, double by, uint64_t seed);

}  // namespace quench::passes
