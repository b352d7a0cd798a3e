// Shapes of runs, as ONNX writes them.
#pragma once

#include "common/ir/graph.h"

namespace quench::importer {

// What passes made of shape arithmetic, for a Reshape in which one dim is unknown: a constant with
// -1 there, as other runtimes know it. A canonical graph; what needs more keeps Quench's operator.
void WriteDimsAsConstants(Graph& graph);

}  // namespace quench::importer
