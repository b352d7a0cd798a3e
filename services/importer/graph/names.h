// Names: unique, printable (common/base/printable.h), and quick to make unique.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "common/base/printable.h"
#include "common/ir/graph.h"

namespace quench::importer {

// The set of names in use in one scope.
class NameSet {
 public:
  bool Contains(const std::string& name) const { return names_.contains(name); }
  // `wanted`, or `wanted_N` if that is taken; "" counts as `fallback`. Takes the name.
  std::string Take(const std::string& wanted, const std::string& fallback = "v");

 private:
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, int64_t> next_;
};

// Appends to a graph in constant time per value and node, unlike Graph::AddValue, which checks every name.
ValueId PushValue(Graph& graph, std::string name, Type type = {});
ValueId PushConstant(Graph& graph, std::string name, std::shared_ptr<const Constant> constant);
// Sets the producers of the node's outputs.
NodeId PushNode(Graph& graph, Node node);

}  // namespace quench::importer
