// Operators that --float16 and --bfloat16 leave in f32, and the reasons.
#pragma once

#include <string>
#include <vector>

#include "common/passes/pass.h"

namespace quench::passes {

struct KeptFloat32 {
  std::string node, op;
  std::string reason;  // "exp overflows f16 early", "its values reach 40000 on samples" ...
};

// The nodes whose results are f32 although options.store_as is f16 or bf16, in execution order. `graph` is
// what store_float16 gave. Nodes in bodies are not listed: the node that has the bodies is.
std::vector<KeptFloat32> KeptInFloat32(const Graph& graph, const PassOptions& options);

// For each node of a graph that is f32 why it does not give `options.store_as`; empty where it may, and for
// nodes that give no f32.
std::vector<std::string> WhyFloat32(const Graph& graph, const PassOptions& options);

}  // namespace quench::passes
