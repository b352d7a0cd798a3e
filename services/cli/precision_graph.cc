#include "services/cli/precision_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/status.h"

namespace quench::cli {
namespace {

bool Quantizes(const Node& node) {
  return node.op == "QuantizeLinear" || node.op == "DynamicQuantizeLinear" ||
         node.op == "DequantizeLinear";
}

// Whether a node reads what comes from integers, or gives what becomes some: it stays f32, so that codegen's
// passes see DequantizeLinear, the node and QuantizeLinear, which they compute in integers.
std::vector<bool> BesideIntegers(const Graph& graph) {
  std::vector<bool> beside(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].inputs) {
      const NodeId producer = id == kNone ? kNone : graph.value(id).producer;
      if (producer == kNone) continue;
      if (Quantizes(graph.node(producer))) beside[i] = true;
      if (Quantizes(graph.nodes[i])) beside[static_cast<size_t>(producer)] = true;
    }
  }
  return beside;
}

std::map<std::string, DataType> NodeTypes(const Graph& graph,
                                          std::span<const PrecisionLayer> layers,
                                          const Assignment& types) {
  std::map<std::string, DataType> of_layers, result;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const std::string& name : layers[i].members) of_layers[name] = StoredAs(types.layers[i]);
  }
  const std::vector<bool> beside = BesideIntegers(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::string& name = NameInModel(graph.nodes[i]);
    const auto known = of_layers.find(name);
    if (known != of_layers.end()) {
      result[name] = known->second;
    } else if (beside[i]) {
      result[name] = DataType::kF32;
    } else {
      result.emplace(name, StoredAs(types.others));
    }
  }
  return result;
}

DataType Narrowest(const std::map<std::string, DataType>& types) {
  DataType narrowest = DataType::kF32;
  for (const auto& [name, type] : types) {
    if (type == DataType::kBF16 || (type == DataType::kF16 && narrowest == DataType::kF32))
      narrowest = type;
  }
  return narrowest;
}

absl::StatusOr<MixedModel> Finished(Graph source, const passes::PassOptions& passes,
                                    const StepContext& context) {
  MixedModel model;
  model.passes = passes;
  model.source = source;
  QUENCH_ASSIGN_OR_RETURN(model.graph, passes::RunPipeline(std::move(source), passes, context));
  return model;
}

}  // namespace

absl::StatusOr<MixedModel> UniformModel(const MixedSource& from, Precision type,
                                        const StepContext& context) {
  passes::PassOptions passes = from.passes;
  passes.store_as = StoredAs(type);
  if (type != Precision::kInt8) return Finished(from.module, passes, context);
  QUENCH_ASSIGN_OR_RETURN(quantizer::QuantizedModule quantized,
                          quantizer::Quantize(from.module, from.statistics, from.how, context));
  QUENCH_ASSIGN_OR_RETURN(MixedModel model, Finished(std::move(quantized.graph), passes, context));
  model.quantization.emplace().report = std::move(quantized.report);
  return model;
}

absl::StatusOr<MixedModel> MixModel(const MixedSource& from, std::span<const PrecisionLayer> layers,
                                    const Assignment& types, const StepContext& context) {
  const bool integers =
      std::find(types.layers.begin(), types.layers.end(), Precision::kInt8) != types.layers.end();
  Graph source = from.module;
  std::optional<Quantization> quantization;
  if (integers) {
    quantizer::QuantizeOptions how = from.how;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (types.layers[i] == Precision::kInt8) continue;
      const std::string reason = types.reasons[i].empty()
                                     ? fmt::format("{} is faster", PrecisionName(types.layers[i]))
                                     : types.reasons[i];
      for (const std::string& product : layers[i].products) how.kept[product] = reason;
    }
    QUENCH_ASSIGN_OR_RETURN(quantizer::QuantizedModule quantized,
                            quantizer::Quantize(from.module, from.statistics, how, context));
    source = std::move(quantized.graph);
    quantization.emplace().report = std::move(quantized.report);
  }
  passes::PassOptions passes = from.passes;
  passes.node_types = NodeTypes(source, layers, types);
  const DataType narrowest = Narrowest(passes.node_types);
  QUENCH_ASSIGN_OR_RETURN(MixedModel model, Finished(std::move(source), passes, context));
  model.passes.store_as = narrowest;
  model.quantization = std::move(quantization);
  return model;
}

}  // namespace quench::cli
