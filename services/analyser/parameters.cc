#include "services/analyser/parameters.h"

#include <algorithm>
#include <set>

namespace quench::analyser {
namespace {

// The inputs of an operator that may be parameters, where the others are settings: scales and zero
// points, means and variances that were gathered, sizes, bounds.
const std::set<size_t>* ParameterInputs(const std::string& op) {
  static const auto* const inputs = new std::map<std::string, std::set<size_t>>{
      {"BatchNormalization", {0, 1, 2}},
      {"Clip", {0}},
      {"ConvInteger", {0, 1}},
      {"DequantizeLinear", {0}},
      {"MatMulInteger", {0, 1}},
      {"NonMaxSuppression", {0, 1}},
      {"Pad", {0}},
      {"QLinearConv", {0, 3, 8}},
      {"QLinearMatMul", {0, 3}},
      {"QuantizeLinear", {0}},
      {"Resize", {0}},
  };
  const auto found = inputs->find(op);
  return found == inputs->end() ? nullptr : &found->second;
}

bool MayBeParameter(const Node& node, size_t input) {
  const std::set<size_t>* inputs = ParameterInputs(node.op);
  return inputs == nullptr || inputs->contains(input);
}

}  // namespace

std::vector<bool> FixedValues(const Graph& graph) {
  std::vector<bool> fixed(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) fixed[i] = graph.values[i].constant != nullptr;
  for (const Node& node : graph.nodes) {
    bool given = false, all = true;
    for (const ValueId id : node.inputs) {
      if (id == kNone) continue;
      given = true;
      all = all && fixed[static_cast<size_t>(id)];
    }
    if (node.op != "Constant" && (!given || !all)) continue;
    for (const ValueId id : node.outputs) {
      if (id != kNone) fixed[static_cast<size_t>(id)] = true;
    }
  }
  return fixed;
}

bool IsLayer(const Node& node, const std::vector<bool>& fixed) {
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId id) { return id != kNone && !fixed[static_cast<size_t>(id)]; });
}

void ParameterList::AddLayer(const Graph& graph, const std::vector<bool>& fixed, const Node& node,
                             LayerReport& layer) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == kNone || !fixed[static_cast<size_t>(id)]) continue;
    if (MayBeParameter(node, i)) {
      AddValue(graph, id, node.op == "QLinearConv", layer);
    } else if (const auto& constant = graph.value(id).constant;
               node.op == "BatchNormalization" && constant != nullptr) {
      if (buffers_seen_.insert(&constant->tensor).second) buffers_ += constant->tensor.size();
    }
  }
  for (const auto& [name, attribute] : node.attributes) {
    const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
    if (body == nullptr) continue;
    const std::vector<bool> inside = FixedValues(**body);
    for (const Node& inner : (*body)->nodes) {
      if (IsLayer(inner, inside)) AddLayer(**body, inside, inner, layer);
    }
  }
}

// `quantized`: integers of 32 bits are biases.
void ParameterList::AddValue(const Graph& graph, ValueId id, bool quantized, LayerReport& layer) {
  const Value& value = graph.value(id);
  if (value.constant == nullptr) {
    if (value.producer == kNone) return;
    const Node& node = graph.node(value.producer);
    const bool dequantizes = node.op == "DequantizeLinear";
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNone && MayBeParameter(node, i))
        AddValue(graph, node.inputs[i], quantized || dequantizes, layer);
    }
    return;
  }
  const DataType dtype = value.type.dtype;
  const bool number =
      IsFloat(dtype) ||
      (DataTypeBits(dtype) <= 8 && dtype != DataType::kString && dtype != DataType::kBool) ||
      (quantized && dtype == DataType::kI32);
  if (!number || value.type.rank() == 0) return;
  const Tensor& tensor = value.constant->tensor;
  if (!seen_.insert(&tensor).second) {
    layer.shared_parameters += tensor.size();
    layer.shared_weight_bytes += static_cast<int64_t>(tensor.bytes().size());
    return;
  }
  layer.work.parameters += tensor.size();
  layer.work.weight_bytes += static_cast<int64_t>(tensor.bytes().size());
  found_.push_back({value.name, layer.node, &tensor});
}

}  // namespace quench::analyser
