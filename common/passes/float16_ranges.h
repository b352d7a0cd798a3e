// Nodes that must stay f32 because of the range of f16.
#pragma once

#include <string>
#include <vector>

#include "common/passes/pass.h"

namespace quench::passes {

// For each node why it reads or makes what f16 may not hold; "" where nothing is known to forbid
// f16. What was stored as f16 is in range: the graph that store_float16 gave has the same answers.
std::vector<std::string> WhyBeyondFloat16(const Graph& graph, const PassOptions& options);

}  // namespace quench::passes
