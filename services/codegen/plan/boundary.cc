#include "services/codegen/plan/boundary.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/ops/op.h"

namespace quench::codegen {
namespace {

bool MovesElements(const Node& node) {
  constexpr std::array<std::string_view, 6> kOps = {"Reshape",   "Transpose", "Squeeze",
                                                    "Unsqueeze", "Flatten",   "Identity"};
  return std::find(kOps.begin(), kOps.end(), node.op) != kOps.end();
}

const Tensor* ConstantOf(const Graph& graph, ValueId id) {
  if (id == kNone || graph.value(id).constant == nullptr) return nullptr;
  return &graph.value(id).constant->tensor;
}

// Parameters of a QuantizeLinear or DequantizeLinear of a value of rank `rank`.
std::optional<BoundaryQuantization> Read(const Graph& graph, const Node& node, int64_t rank) {
  const Tensor* scale = ConstantOf(graph, node.inputs[1]);
  const ValueId zero_id = node.inputs.size() > 2 ? node.inputs[2] : kNone;
  const Tensor* zero = ConstantOf(graph, zero_id);
  if (scale == nullptr || scale->rank() > 1 || node.Int("block_size", 0) != 0) return std::nullopt;
  if (zero_id != kNone && (zero == nullptr || zero->size() != scale->size())) return std::nullopt;
  BoundaryQuantization result;
  if (scale->size() != 1) {
    const int64_t axis = node.Int("axis", 1);
    result.axis = static_cast<int>(axis < 0 ? axis + rank : axis);
  }
  for (int64_t i = 0; i < scale->size(); ++i) {
    result.scales.push_back(static_cast<float>(scale->FloatAt(i)));
    result.zero_points.push_back(zero == nullptr ? 0 : static_cast<int32_t>(zero->IntAt(i)));
  }
  return result;
}

}  // namespace

std::optional<BoundaryQuantization> InputQuantization(const Graph& graph, ValueId input) {
  if (graph.IsOutput(input)) return std::nullopt;
  std::optional<BoundaryQuantization> agreed;
  for (const Node& node : graph.nodes) {
    if (std::find(node.inputs.begin(), node.inputs.end(), input) == node.inputs.end()) continue;
    std::optional<BoundaryQuantization> each;
    if (node.inputs[0] == input && node.op == "DequantizeLinear") {
      each = Read(graph, node, static_cast<int64_t>(graph.value(input).type.dims.size()));
    } else if (node.inputs[0] == input && MovesElements(node)) {
      each = InputQuantization(graph, node.outputs[0]);
      if (each && each->axis >= 0) each.reset();
    }
    if (!each || (agreed && *agreed != *each)) return std::nullopt;
    agreed = std::move(each);
  }
  return agreed;
}

std::optional<BoundaryQuantization> OutputQuantization(const Graph& graph, ValueId output) {
  const NodeId producer = graph.value(output).producer;
  if (producer == kNone) return std::nullopt;
  const Node& node = graph.node(producer);
  if (node.op == "QuantizeLinear")
    return Read(graph, node, static_cast<int64_t>(graph.value(output).type.dims.size()));
  if (!MovesElements(node)) return std::nullopt;
  std::optional<BoundaryQuantization> result = OutputQuantization(graph, node.inputs[0]);
  return result && result->axis < 0 ? result : std::nullopt;
}

std::optional<size_t> InputInPlaceOf(const Graph& graph, ValueId output) {
  const NodeId producer = graph.value(output).producer;
  if (producer == kNone) return std::nullopt;
  const Node& node = graph.node(producer);
  const ops::OpDef* op = ops::FindOp(node.op);
  if (op == nullptr || !op->updates || node.outputs[0] != output) return std::nullopt;
  const ValueId updated = node.inputs[0];
  const auto input = std::find(graph.inputs.begin(), graph.inputs.end(), updated);
  if (input == graph.inputs.end() || graph.value(updated).type != graph.value(output).type ||
      graph.UseCounts()[static_cast<size_t>(updated)] != 1 ||
      std::count(graph.outputs.begin(), graph.outputs.end(), output) != 1)
    return std::nullopt;
  return static_cast<size_t>(input - graph.inputs.begin());
}

}  // namespace quench::codegen
