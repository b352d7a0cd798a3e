// The C header that goes with a compiled model.
#pragma once

#include <string>

#include "common/ir/graph.h"

namespace quench::codegen {

// Names, shapes and types of inputs and outputs as comments and constants, and how to run the
// model.
std::string ModelHeader(const Graph& graph, const std::string& library, const std::string& uuid,
                        const std::string& producer);

}  // namespace quench::codegen
