// Parts of graphs, to be evaluated separately.
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
// The value of this name; nothing if the name is empty or unknown.
std::optional<ValueId> Find(const ValueIds& ids, const std::string& name);

// The part of a graph that computes `targets`, from given values and from inputs of the graph.
struct GraphPart {
  Graph graph;  // outputs: targets, in order; inputs keep their names
  std::vector<std::string> inputs;
  std::vector<NodeId> nodes;  // of the whole graph
};

// A target is computed even if it is given; nodes that read it then take it as an input. The part shares
// the graph's symbols. Targets are neither constants nor inputs of the graph.
GraphPart PartBetween(const Graph& whole, const std::set<ValueId>& given,
                      const std::vector<ValueId>& targets);

// The approximate time of the interpreter for a node, in seconds; unknown sizes count as typical
// sizes. Bodies of loops count sixteen times.
double InterpreterSeconds(const Graph& graph, const Node& node);
double InterpreterSeconds(const Graph& graph);

}  // namespace quench::codegen
