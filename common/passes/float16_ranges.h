// Nodes that must stay f32 because of the range of f16 or bf16.
#pragma once

#include <string>
#include <vector>

#include "common/passes/pass.h"

namespace quench::passes {

// For each node the reason why it reads or makes values that options.store_as may not hold; ""
// where nothing is known to forbid it. Values already stored so are in range: for the graph that
// store_float16 gave, the answers are the same.
std::vector<std::string> WhyBeyondRange(const Graph& graph, const PassOptions& options);

}  // namespace quench::passes
