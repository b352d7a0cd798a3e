#include "services/analyser/report_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "services/analyser/graph_layout.h"
#include "services/analyser/json_number.h"
#include "services/analyser/layer_tree.h"
#include "services/analyser/svg.h"

namespace quench::analyser {
namespace {

using PageJson = nlohmann::json;

PageJson LayersForPage(const ModelReport& report) {
  PageJson list = PageJson::array();
  for (const LayerReport& layer : report.layers) {
    const Work& work = layer.work;
    list.push_back(PageJson::array({layer.node, layer.op, KindClass(layer.kind), layer.kernel,
                                    fmt::format("{}", fmt::join(layer.inputs, " ")),
                                    fmt::format("{}", fmt::join(layer.outputs, " ")),
                                    work.parameters, work.weight_bytes, work.macs, work.flops,
                                    work.activation_bytes, layer.live_bytes, layer.moved_bytes,
                                    layer.predicted_seconds, layer.bound}));
  }
  return list;
}

PageJson TreeForPage(const ModelReport& report) {
  PageJson list = PageJson::array();
  for (const TreeRow& row : LayerTree(report, 0))
    list.push_back(PageJson::array({row.depth, row.name, row.layer}));
  return list;
}

// Boxes: the model's inputs, then the layers, then its outputs.
PageJson GraphForPage(const ModelReport& report) {
  std::vector<int> box_of_value(report.values.size());
  PageJson inputs = PageJson::array(), outputs = PageJson::array();
  for (size_t i = 0; i < report.values.size(); ++i) {
    if (report.values[i].first >= 0) continue;
    box_of_value[i] = static_cast<int>(inputs.size());
    inputs.push_back(PageJson::array({report.values[i].name, report.values[i].type}));
  }
  const int first_layer = static_cast<int>(inputs.size());
  const int first_output = first_layer + static_cast<int>(report.layers.size());
  std::set<std::pair<int, int>> edges;
  std::map<std::string, int> made;  // by name, the box
  for (size_t i = 0; i < report.values.size(); ++i) {
    if (report.values[i].first >= 0) box_of_value[i] = first_layer + report.values[i].first;
    made[report.values[i].name] = box_of_value[i];
  }
  for (size_t i = 0; i < report.layers.size(); ++i) {
    for (const int read : report.layers[i].reads) {
      if (read < 0 || static_cast<size_t>(read) >= box_of_value.size()) continue;
      const int from = box_of_value[static_cast<size_t>(read)];
      const int to = first_layer + static_cast<int>(i);
      if (from < to) edges.emplace(from, to);
    }
  }
  for (const auto& [name, type] : report.outputs) {
    if (const auto found = made.find(name); found != made.end())
      edges.emplace(found->second, first_output + static_cast<int>(outputs.size()));
    outputs.push_back(PageJson::array({name, type}));
  }
  std::vector<GraphEdge> list;
  for (const auto& [from, to] : edges) list.push_back({from, to});
  const GraphLayout layout = LayOut(first_output + static_cast<int>(outputs.size()), list);
  PageJson boxes = PageJson::array(), routes = PageJson::array();
  for (const GraphPoint& point : layout.boxes) {
    boxes.push_back(point.x);
    boxes.push_back(point.y);
  }
  for (size_t i = 0; i < list.size(); ++i) {
    PageJson route = PageJson::array({list[i].from, list[i].to});
    for (const GraphPoint& point : layout.routes[i]) {
      route.push_back(point.x);
      route.push_back(point.y);
    }
    routes.push_back(std::move(route));
  }
  return {{"inputs", inputs},       {"outputs", outputs},       {"boxes", boxes},
          {"edges", routes},        {"width", layout.width},    {"height", layout.height},
          {"box_width", kBoxWidth}, {"box_height", kBoxHeight}, {"rank_height", kRankHeight}};
}

// Like weights.
PageJson ActivationsForPage(const ModelReport& report) {
  PageJson list = PageJson::array();
  for (const ActivationReport& each : report.activations) {
    const TensorStatistics& found = each.statistics;
    list.push_back(
        PageJson::array({each.name, each.type, each.layer, found.elements, found.zeros,
                         found.nan + found.infinite, JsonNumber(found.min), JsonNumber(found.max),
                         JsonNumber(found.mean), JsonNumber(found.std), found.histogram}));
  }
  return list;
}

PageJson WeightsForPage(const ModelReport& report) {
  PageJson list = PageJson::array();
  for (const WeightReport& weight : report.weights) {
    list.push_back(
        PageJson::array({weight.name, weight.type, weight.layer, weight.elements, weight.zeros,
                         weight.not_finite, JsonNumber(weight.min), JsonNumber(weight.max),
                         JsonNumber(weight.mean), JsonNumber(weight.std), weight.histogram}));
  }
  return list;
}

}  // namespace

nlohmann::json PageData(const ModelReport& report) {
  return {{"name", report.name},
          {"layers", LayersForPage(report)},
          {"tree", TreeForPage(report)},
          {"graph", GraphForPage(report)},
          {"weights", WeightsForPage(report)},
          {"activations", ActivationsForPage(report)},
          {"predicted", report.ceilings.has_value()}};
}

}  // namespace quench::analyser
