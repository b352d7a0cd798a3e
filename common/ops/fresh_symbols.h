// Types of a graph anew, from those of its inputs.
#pragma once

#include <absl/status/statusor.h>

#include "common/ir/graph.h"

namespace quench::ops {

// The graph with a symbol table of its own, in which each symbolic size of an input is a symbol that
// this input defines, and with all other types inferred again. Sizes that are the same remain the
// same, and symbols of inputs keep names and ranges; other expressions become symbols
// `size_<input>_<axis>`. For graphs whose inputs have changed, or that were part of another one.
absl::StatusOr<Graph> WithFreshSymbols(Graph graph);

}  // namespace quench::ops
