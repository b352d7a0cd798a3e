// Parts of graphs, to be evaluated by themselves.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::codegen {

using ValueIds = std::map<std::string, ValueId>;
ValueIds ValueIdsOf(const Graph& graph);
// The value of this name; none where it is empty or unknown.
std::optional<ValueId> Find(const ValueIds& ids, const std::string& name);

// The part of a graph that computes `targets`, from given values and from inputs of the graph.
struct GraphPart {
  Graph graph;  // outputs: targets, in order; inputs by the names that they have in the whole
  std::vector<std::string> inputs;
  std::vector<NodeId> nodes;  // of the whole
};

// A target is computed even where it is given: for others that read it, it is an input then. Symbols are
// the whole's. Targets are neither constants nor inputs of the graph.
GraphPart PartBetween(const Graph& whole, const std::set<ValueId>& given,
                      const std::vector<ValueId>& targets);

// About how long the interpreter takes for a node, in seconds, where all sizes are known; those that are
// not count as they do at typical sizes. Bodies of loops count sixteen times.
double InterpreterSeconds(const Graph& graph, const Node& node);
double InterpreterSeconds(const Graph& graph);

}  // namespace quench::codegen
