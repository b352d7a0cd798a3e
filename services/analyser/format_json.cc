// A ModelReport as JSON for scripts.
#include <nlohmann/json.hpp>

#include "services/analyser/analyser.h"
#include "services/analyser/json_number.h"
#include "services/analyser/layer_tree.h"
#include "services/analyser/listings.h"
#include "services/analyser/roofline.h"

namespace quench::analyser {
namespace {

using Json = nlohmann::json;

Json PairsToJson(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Json list = Json::array();
  for (const auto& [name, type] : pairs) list.push_back({{"name", name}, {"type", type}});
  return list;
}

Json WorkToJson(const Work& work) {
  return {{"macs", work.macs},
          {"macs_with_bias", work.macs_with_bias},
          {"macs_without_padding", work.macs_without_padding},
          {"operations", work.operations},
          {"operations_with_padding", work.operations_with_padding},
          {"flops", work.flops},
          {"parameters", work.parameters},
          {"weight_bytes", work.weight_bytes},
          {"activation_bytes", work.activation_bytes}};
}

Json LayersToJson(const ModelReport& report) {
  Json layers = Json::array();
  for (const LayerReport& layer : report.layers) {
    Json json = WorkToJson(layer.work);
    json.update({{"node", layer.node},
                 {"op", layer.op},
                 {"kind", layer.kind},
                 {"kernel", layer.kernel},
                 {"inputs", layer.inputs},
                 {"outputs", layer.outputs},
                 {"shared_parameters", layer.shared_parameters},
                 {"input_bytes", layer.input_bytes},
                 {"first_input_bytes", layer.first_input_bytes},
                 {"first_output_bytes", layer.first_output_bytes},
                 {"live_bytes", layer.live_bytes},
                 {"reads", layer.reads},
                 {"moved_bytes", layer.moved_bytes},
                 {"arithmetic_intensity", Intensity(layer.work.flops, layer.moved_bytes)}});
    if (report.ceilings) {
      json["predicted_seconds"] = layer.predicted_seconds;
      json["bound"] = layer.bound;
    }
    layers.push_back(std::move(json));
  }
  return layers;
}

Json TreeToJson(const ModelReport& report) {
  Json rows = Json::array();
  for (const TreeRow& row : LayerTree(report, 0)) {
    Json json = WorkToJson(row.work);
    json.update({{"depth", row.depth},
                 {"name", row.name},
                 {"layers", row.layers},
                 {"moved_bytes", row.moved_bytes}});
    if (report.ceilings) json["predicted_seconds"] = row.predicted_seconds;
    if (row.layer >= 0) json["layer"] = row.layer;
    rows.push_back(std::move(json));
  }
  return rows;
}

Json OperatorsToJson(const ModelReport& report) {
  Json list = Json::array();
  for (const OperatorReport& each : report.by_operator) {
    Json json = WorkToJson(each.work);
    json.update({{"op", each.op}, {"kind", each.kind}, {"layers", each.layers}});
    list.push_back(std::move(json));
  }
  return list;
}

Json BandwidthToJson(const ModelReport& report) {
  const Bandwidth sums = BandwidthOf(report);
  Json json = {{"peak", sums.peak},
               {"inputs", sums.inputs},
               {"outputs", sums.outputs},
               {"outputs_and_input", sums.outputs_and_input}};
  if (sums.peak_layer >= 0)
    json["peak_layer"] = report.layers[static_cast<size_t>(sums.peak_layer)].node;
  return json;
}

Json ValuesToJson(const ModelReport& report) {
  Json list = Json::array();
  for (const ValueLife& value : report.values) {
    list.push_back({{"name", value.name},
                    {"type", value.type},
                    {"bytes", value.bytes},
                    {"first", value.first},
                    {"last", value.last}});
  }
  return list;
}

Json PlanToJson(const MemoryPlan& plan) {
  Json buffers = Json::array(), kernels = Json::array();
  for (const MemoryPlan::Kernel& kernel : plan.kernels)
    kernels.push_back({{"node", kernel.node}, {"used_bytes", kernel.used_bytes}});
  for (const MemoryPlan::Buffer& buffer : plan.buffers) {
    buffers.push_back({{"values", buffer.values},
                       {"offset", buffer.offset},
                       {"bytes", buffer.bytes},
                       {"first", buffer.first},
                       {"last", buffer.last}});
  }
  return {{"target", plan.target},
          {"arena_bytes", plan.arena_bytes},
          {"lower_bound_bytes", plan.lower_bound_bytes},
          {"kernels", kernels},
          {"buffers", buffers}};
}

Json WeightsToJson(const ModelReport& report) {
  Json list = Json::array();
  for (const WeightReport& weight : report.weights) {
    list.push_back({{"name", weight.name},
                    {"type", weight.type},
                    {"layer", weight.layer},
                    {"elements", weight.elements},
                    {"zeros", weight.zeros},
                    {"not_finite", weight.not_finite},
                    {"min", JsonNumber(weight.min)},
                    {"max", JsonNumber(weight.max)},
                    {"mean", JsonNumber(weight.mean)},
                    {"std", JsonNumber(weight.std)},
                    {"histogram", weight.histogram}});
  }
  return list;
}

}  // namespace

std::string ToJson(const ModelReport& report) {
  const Work& work = report.work;
  Json json = {{"name", report.name},
               {"inputs", PairsToJson(report.inputs)},
               {"outputs", PairsToJson(report.outputs)},
               {"operators", report.operators},
               {"parameters", work.parameters},
               {"trainable_parameters", report.trainable_parameters},
               {"shared_parameters", report.shared_parameters},
               {"buffers", report.buffers},
               {"parameters_by_type", report.parameters_by_type},
               {"weight_bytes", work.weight_bytes},
               {"weight_bytes_by_type", report.weight_bytes_by_type},
               {"macs",
                {{"total", work.macs},
                 {"total_with_bias", work.macs_with_bias},
                 {"total_without_padding", work.macs_without_padding},
                 {"by_op", report.macs_by_op}}},
               {"operations", work.operations},
               {"flops", work.flops},
               {"by_operator", OperatorsToJson(report)},
               {"not_counted", report.uncounted},
               {"input_bytes", report.input_bytes},
               {"forward_backward_bytes", report.forward_backward_bytes},
               {"activation_bytes",
                {{"total", work.activation_bytes},
                 {"peak", report.peak_activation_bytes},
                 {"nested", report.nested_activation_bytes}}},
               {"bandwidth", BandwidthToJson(report)},
               {"moved_bytes", report.moved_bytes},
               {"layers", LayersToJson(report)},
               {"tree", TreeToJson(report)},
               {"values", ValuesToJson(report)},
               {"fingerprint", report.fingerprint},
               {"structure_hash", report.structure_hash},
               {"symbol_sizes", report.symbol_sizes},
               {"rules", report.rules}};
  if (report.ceilings) {
    json["predicted_seconds"] = report.predicted_seconds;
    json["ceilings"] = {{"name", report.ceilings->name},
                        {"source", report.ceilings->source},
                        {"gflops", report.ceilings->gflops},
                        {"gbytes", report.ceilings->gbytes}};
  }
  if (report.memory_plan) json["memory_plan"] = PlanToJson(*report.memory_plan);
  if (!report.weights.empty()) json["weights"] = WeightsToJson(report);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace quench::analyser
