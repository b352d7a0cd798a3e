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

}  // namespace quench::passes
