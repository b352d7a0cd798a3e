// A ModelReport as text for people and as JSON for scripts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "services/analyser/analyser.h"

namespace quench::analyser {
namespace {

// 25557032 -> "25,557,032"
std::string Grouped(int64_t value) {
  std::string digits = std::to_string(value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string Megabytes(int64_t bytes) {
  return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6);
}

std::string Bar(double share) {
  return std::string(static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * 20)), '#');
}

// At most `width` characters: names differ at their end, types at their beginning.
std::string CutInFront(const std::string& text, size_t width) {
  return text.size() <= width ? text : "..." + text.substr(text.size() - width + 3);
}
std::string CutAtEnd(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

std::string LayerTable(const ModelReport& report) {
  constexpr size_t kWidestName = 52, kWidestShapes = 40;
  size_t names = 5, shapes = 6, ops = 2;
  std::vector<std::string> outputs;
  for (const LayerReport& layer : report.layers) {
    outputs.push_back(fmt::format("{}", fmt::join(layer.output_shapes, " ")));
    names = std::max(names, std::min(layer.node.size(), kWidestName));
    ops = std::max(ops, layer.op.size());
    shapes = std::max(shapes, std::min(outputs.back().size(), kWidestShapes));
  }
  std::string text =
      fmt::format("{:<{}} {:<{}} {:<{}} {:>13} {:>12} {:>16} {:>12}\n", "layer", names, "op", ops,
                  "output", shapes, "parameters", "weights", "macs", "activations");
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const LayerReport& layer = report.layers[i];
    text += fmt::format("{:<{}} {:<{}} {:<{}} {:>13} {:>12} {:>16} {:>12}\n",
                        CutInFront(layer.node, kWidestName), names, layer.op, ops,
                        CutAtEnd(outputs[i], kWidestShapes), shapes, Grouped(layer.parameters),
                        Grouped(layer.weight_bytes), Grouped(layer.macs),
                        Grouped(layer.activation_bytes));
  }
  return text;
}

// " (i8 25,502,912, i32 27,560)"; nothing where all are f32.
std::string Types(const std::map<std::string, int64_t>& parameters) {
  if (parameters.empty() || (parameters.size() == 1 && parameters.contains("f32"))) return "";
  std::vector<std::string> parts;
  for (const auto& [type, count] : parameters)
    parts.push_back(fmt::format("{} {}", type, Grouped(count)));
  return fmt::format(" ({})", fmt::join(parts, ", "));
}

nlohmann::json PairsToJson(const std::vector<std::pair<std::string, std::string>>& pairs) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, type] : pairs) list.push_back({{"name", name}, {"type", type}});
  return list;
}

}  // namespace

std::string ToTable(const ModelReport& report) {
  std::string text = LayerTable(report) + "\n";
  for (const auto& [name, type] : report.inputs)
    text += fmt::format("input             {}: {}\n", name, type);
  for (const auto& [name, type] : report.outputs)
    text += fmt::format("output            {}: {}\n", name, type);
  text += fmt::format("parameters        {}{}\nweights           {}\n", Grouped(report.parameters),
                      Types(report.parameters_by_type), Megabytes(report.weight_bytes));
  text += fmt::format("macs              {} ({:.3f} G), with bias {}\n", Grouped(report.macs),
                      static_cast<double>(report.macs) / 1e9, Grouped(report.macs_with_bias));
  for (const auto& [op, macs] : report.macs_by_op) {
    const double share =
        static_cast<double>(macs) / static_cast<double>(std::max<int64_t>(report.macs, 1));
    text +=
        fmt::format("  {:<15} {:>16} {:>5.1f} % {}\n", op, Grouped(macs), 100 * share, Bar(share));
  }
  text += fmt::format("activations       {} in all, {} at peak\n",
                      Megabytes(report.activation_bytes), Megabytes(report.peak_activation_bytes));
  text += "operators\n";
  std::vector<std::pair<std::string, int64_t>> operators(report.operators.begin(),
                                                         report.operators.end());
  std::stable_sort(operators.begin(), operators.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [op, count] : operators) {
    text += fmt::format(
        "  {:<22} {:>6} {}\n", op, count,
        Bar(static_cast<double>(count) / static_cast<double>(operators.front().second)));
  }
  text += fmt::format("fingerprint       {}\nstructure         {}\n", report.fingerprint,
                      report.structure_hash);
  for (const auto& [name, size] : report.symbol_sizes)
    text += fmt::format("counted at        {} = {}\n", name, size);
  for (const std::string& rule : report.rules) text += fmt::format("rule              {}\n", rule);
  return text;
}

std::string ToJson(const ModelReport& report) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerReport& layer : report.layers) {
    layers.push_back({{"node", layer.node},
                      {"op", layer.op},
                      {"outputs", layer.output_shapes},
                      {"parameters", layer.parameters},
                      {"weight_bytes", layer.weight_bytes},
                      {"macs", layer.macs},
                      {"macs_with_bias", layer.macs_with_bias},
                      {"activation_bytes", layer.activation_bytes}});
  }
  const nlohmann::json json = {
      {"name", report.name},
      {"inputs", PairsToJson(report.inputs)},
      {"outputs", PairsToJson(report.outputs)},
      {"operators", report.operators},
      {"parameters", report.parameters},
      {"parameters_by_type", report.parameters_by_type},
      {"weight_bytes", report.weight_bytes},
      {"macs",
       {{"total", report.macs},
        {"total_with_bias", report.macs_with_bias},
        {"by_op", report.macs_by_op}}},
      {"activation_bytes",
       {{"total", report.activation_bytes}, {"peak", report.peak_activation_bytes}}},
      {"layers", layers},
      {"fingerprint", report.fingerprint},
      {"structure_hash", report.structure_hash},
      {"symbol_sizes", report.symbol_sizes},
      {"rules", report.rules}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace quench::analyser
