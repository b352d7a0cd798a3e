#include "services/importer/graph/names.h"

namespace quench::importer {

std::string NameSet::Take(const std::string& wanted, const std::string& fallback) {
  const std::string& base = wanted.empty() ? fallback : wanted;
  std::string name = base;
  while (!names_.insert(name).second) name = base + "_" + std::to_string(++next_[base]);
  return name;
}

ValueId PushValue(Graph& graph, std::string name, Type type) {
  graph.values.push_back({std::move(name), std::move(type), kNone, nullptr, std::nullopt});
  return static_cast<ValueId>(graph.values.size() - 1);
}

ValueId PushConstant(Graph& graph, std::string name, std::shared_ptr<const Constant> constant) {
  const Tensor& tensor = constant->tensor;
  const ValueId id =
      PushValue(graph, std::move(name),
                Type::Tensor(tensor.dtype(), {tensor.dims().begin(), tensor.dims().end()}));
  graph.value(id).constant = std::move(constant);
  return id;
}

NodeId PushNode(Graph& graph, Node node) {
  const NodeId id = static_cast<NodeId>(graph.nodes.size());
  for (const ValueId output : node.outputs) {
    if (output != kNone) graph.value(output).producer = id;
  }
  graph.nodes.push_back(std::move(node));
  return id;
}

}  // namespace quench::importer
