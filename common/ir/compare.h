// Exact comparison of graphs, for tests and round trips. (Equality up to names is equality of
// fingerprints.)
#pragma once

#include <string>

#include "common/ir/graph.h"

namespace quench {

// "" when the graphs are the same, else the first difference in words. Values are matched by name,
// sizes by what their expressions mean; numbers of values, nodes and symbols do not matter. Values
// that nothing uses and NaN payloads in attributes are not compared. May add expressions to the
// symbol table of `b`.
std::string FirstDifference(const Graph& a, const Graph& b);

}  // namespace quench
