// Graphs that exercise every part of the IR, shared by the tests of its text and wire forms.
#pragma once

#include <vector>

#include "common/ir/graph.h"

namespace quench::testing {

// A canonical graph with nested bodies, every kind of attribute, type and size.
Graph EverythingGraph();
// A constant of each dtype with the extreme, special and odd bit patterns.
Graph EveryConstantGraph();
// An imported graph: domains, versions, origins, captures, unknown types, odd names.
Graph ImportedGraph();
// Random small graphs, legal for their stage.
Graph RandomGraph(uint32_t seed);

}  // namespace quench::testing
