// Structural legality per stage. Operator rules (arity, attributes, types) are in ops::CheckNode.
#pragma once

#include <absl/status/status.h>

#include "common/ir/graph.h"

namespace quench {

// Ids in range, names unique and non-empty, topological order, producers consistent, one definition
// per value, types known from `canonical` on, no captures, bodies share the table, constants match
// their types, domain and version only at `imported`. Reports every defect at once.
absl::Status VerifyGraph(const Graph& graph);

}  // namespace quench
