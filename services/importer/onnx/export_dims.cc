#include "services/importer/onnx/export_dims.h"

#include <algorithm>

namespace quench::importer {
namespace {

// Dims of a Reshape's result, -1 for the only one that is not known; none if there are more, or the
// tensor may have no elements: of those, -1 says nothing.
std::optional<std::vector<int64_t>> ShapeOf(const Graph& graph, const Type& type) {
  if (!type.ranked) return std::nullopt;
  std::vector<int64_t> shape;
  int unknown = 0;
  for (const Dim dim : type.dims) {
    const int64_t least = dim.is_static() ? dim.value() : graph.symbols->BoundsOf(dim).min;
    if (least < 1) return std::nullopt;
    shape.push_back(dim.is_static() ? dim.value() : -1);
    unknown += dim.is_static() ? 0 : 1;
  }
  return unknown <= 1 ? std::optional(shape) : std::nullopt;
}

}  // namespace

void WriteDimsAsConstants(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op != "Reshape" || node.inputs[1] == kNone) continue;
    const NodeId producer = graph.value(node.inputs[1]).producer;
    if (producer == kNone || graph.node(producer).op != "q.dims") continue;
    const auto shape = ShapeOf(graph, graph.value(node.outputs[0]).type);
    if (!shape) continue;
    const ValueId constant = graph.AddConstant(node.name + ".shape", Tensor::I64(*shape));
    graph.nodes[i].inputs[1] = constant;
  }
  graph.Compact();
}

}  // namespace quench::importer
