// Where integers save little, for a reason that lies around a kernel.
#pragma once

#include <string>

#include "common/ir/graph.h"

namespace quench::codegen {

// As Candidate.slow, of a product or convolution, alone or as the root of a group: it has few
// multiplications for the numbers that become integers for it alone, or it is computed in float
// though what it reads is integers.
std::string WhyIntegersSaveLittle(const Graph& graph, const Node& node);

}  // namespace quench::codegen
