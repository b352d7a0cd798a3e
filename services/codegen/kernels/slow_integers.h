// Cases in which integers save little, for a reason that lies around a kernel.
#pragma once

#include <string>

#include "common/ir/graph.h"

namespace quench::codegen {

// Text for Candidate.slow about a product or convolution, alone or as the root of a group: it has
// few multiplications for the numbers that are quantized just for it, or it is computed in float
// although its operands are integers.
// Multiplications of a node, or of the root of a group, at typical sizes; 0 where it has none.
double MultiplicationsOf(const Graph& graph, const Node& node);

std::string WhyIntegersSaveLittle(const Graph& graph, const Node& node);

}  // namespace quench::codegen
