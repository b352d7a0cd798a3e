#include <algorithm>

#include "common/ops/bodies.h"
#include "common/passes/fold.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

// Number of trailing inputs that the node passes unchanged to each of its bodies.
size_t CapturesOf(const Node& node) {
  if (node.op == "If") return node.inputs.empty() ? 0 : node.inputs.size() - 1;
  const bool carries = node.op == "Loop" || node.op == "Scan";
  return carries ? static_cast<size_t>(ops::CaptureCount(node)) : 0;
}

ValueId FromEnd(const std::vector<ValueId>& ids, size_t place) { return ids[ids.size() - place]; }

void DropFromEnd(std::vector<ValueId>& ids, size_t place) {
  ids.erase(ids.end() - static_cast<std::ptrdiff_t>(place));
}

// A body's output has to be computed, or be an input.
bool CanBeConstant(const Graph& body, size_t place) {
  return place <= body.inputs.size() && !body.IsOutput(FromEnd(body.inputs, place));
}

void MoveCaptures(const Graph& graph, Node& node) {
  std::map<std::string, Graph> bodies;
  for (const auto& [name, attribute] : node.attributes) {
    if (const GraphPtr* body = std::get_if<GraphPtr>(&attribute)) bodies.emplace(name, **body);
  }
  int64_t moved = 0;
  for (size_t place = CapturesOf(node); place > 0; --place) {
    const ValueId id = FromEnd(node.inputs, place);
    if (ConstantOf(graph, id) == nullptr ||
        !std::all_of(bodies.begin(), bodies.end(),
                     [&](const auto& body) { return CanBeConstant(body.second, place); }))
      continue;
    for (auto& [name, body] : bodies) {
      body.value(FromEnd(body.inputs, place)).constant = graph.value(id).constant;
      DropFromEnd(body.inputs, place);
    }
    DropFromEnd(node.inputs, place);
    ++moved;
  }
  if (moved == 0) return;
  for (auto& [name, body] : bodies)
    node.attributes[name] = std::make_shared<const Graph>(std::move(body));
  if (node.op == "If") return;
  const int64_t left = node.Int("q.captures", 0) - moved;
  if (left > 0) {
    node.attributes["q.captures"] = left;
  } else {
    node.attributes.erase("q.captures");
  }
}

}  // namespace

void MoveConstantsIntoBodies(Graph& graph) {
  for (Node& node : graph.nodes) {
    const size_t captures = CapturesOf(node);
    const bool constant =
        std::any_of(node.inputs.end() - static_cast<std::ptrdiff_t>(captures), node.inputs.end(),
                    [&](ValueId id) { return ConstantOf(graph, id) != nullptr; });
    if (constant) MoveCaptures(graph, node);
  }
}

}  // namespace quench::passes
