// Shapes of runs, as ONNX writes them.
#pragma once

#include "common/ir/graph.h"

namespace quench::importer {

// Turns the results of shape arithmetic for a Reshape in which one dim is unknown into a constant
// with -1 there, as other runtimes expect. A canonical graph; anything else keeps Quench's
// operator.
void WriteDimsAsConstants(Graph& graph);

}  // namespace quench::importer
