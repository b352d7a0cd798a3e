#include "common/passes/rewrite.h"

#include "common/base/status.h"
#include "common/ops/op.h"

namespace quench::passes {

bool Replace(Graph& graph, ValueId from, ValueId to) {
  if (from == to || from == kNone || to == kNone) return false;
  if (graph.IsOutput(from)) {
    const Value& target = graph.value(to);
    if (target.producer == kNone || graph.IsOutput(to)) return false;
  }
  graph.ReplaceUses(from, to);
  return true;
}

void TakePlace(Graph& graph, ValueId from, ValueId to) {
  const bool output = graph.IsOutput(from);  // then its name goes along
  graph.ReplaceUses(from, to);
  if (!output) std::swap(graph.value(from).name, graph.value(to).name);
}

ValueId AddTyped(Graph& graph, const std::string& op, const std::string& name,
                 std::vector<ValueId> inputs, Type type,
                 std::map<std::string, Attribute> attributes) {
  const NodeId id = graph.AddNode(op, name, std::move(inputs), 1, std::move(attributes));
  const ValueId output = graph.node(id).outputs[0];
  graph.value(output).type = std::move(type);
  return output;
}

absl::StatusOr<Graph> Settled(Graph graph) {
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));
  return graph;
}

const Tensor* ConstantOf(const Graph& graph, ValueId id) {
  if (id == kNone || graph.value(id).constant == nullptr) return nullptr;
  return &graph.value(id).constant->tensor;
}

absl::Status ForEachBody(Graph& graph, const std::function<absl::StatusOr<Graph>(Graph)>& pass) {
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes) {
      GraphPtr* body = std::get_if<GraphPtr>(&attribute);
      if (body == nullptr) continue;
      absl::StatusOr<Graph> result = pass(**body);
      if (!result.ok())
        return Annotate(result.status(), fmt::format("body `{}` of node `{}`", name, node.name));
      *body = std::make_shared<const Graph>(*std::move(result));
    }
  }
  return absl::OkStatus();
}

}  // namespace quench::passes
