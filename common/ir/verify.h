// Structural legality per stage. Operator rules (arity, attributes, types) are in ops::CheckNode.
#pragma once

#include <absl/status/status.h>

#include "common/ir/graph.h"

namespace quench {

// At every stage: ids are in range, names unique and non-empty, nodes in topological order,
// producers consistent, every used value has exactly one definition (input, constant or node),
// constants match their types, bodies share the stage and the symbol table and nest at most
// kMaxBodyNesting deep, symbols of types exist. `imported` alone: domain and version on nodes,
// unknown types, and values of a body without a definition when an enclosing graph has a value of
// that name (ONNX's captures). From `canonical` on: no captures, every used value has a known type,
// symbols of input sizes refer to an axis that exists, a `q.fused` node has a `body` whose inputs
// and outputs are its own. Reports every defect at once, each as "value `x`: ..." or "node `n`:
// ...", bodies prefixed with their node.
absl::Status VerifyGraph(const Graph& graph);

inline constexpr int kMaxBodyNesting = 32;
// The limit holds for a model's own bodies: passes put groups and parts into them.
inline constexpr int kMaxModelNesting = kMaxBodyNesting - 2;

}  // namespace quench
