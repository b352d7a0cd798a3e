// A graph for each operator of the catalogue.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::codegen {

// Graphs of one node or few, with types; together they have every operator but those of NotAlone.
std::vector<Graph> GraphsOfAllOperators();
// Operators that no graph here has, and why.
const std::map<std::string, std::string>& NotAlone();

}  // namespace quench::codegen
