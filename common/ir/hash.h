// Identities of graphs, stable across versions of Quench.
#pragma once

#include <string>

#include "common/ir/graph.h"

namespace quench {

// sha256 over structure and weights (constants by the digest of their bytes): names and the order
// of independent nodes do not matter; input and output names do (they are the interface).
std::string Fingerprint(const Graph& graph);
// The same without constant contents and without any name.
std::string StructureHash(const Graph& graph);

}  // namespace quench
