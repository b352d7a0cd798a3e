// Nodes that must stay f32 because of the range of f16 or bf16.
#pragma once

#include <string>
#include <vector>

#include "common/passes/pass.h"

namespace quench::passes {

// For each node why it reads or makes what options.store_as may not hold; "" where nothing is known to
// forbid that. What was stored so is in range: the graph that store_float16 gave has the same answers.
std::vector<std::string> WhyBeyondRange(const Graph& graph, const PassOptions& options);

}  // namespace quench::passes
