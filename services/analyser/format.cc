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

std::string LayerTable(const ModelReport& report) {
  std::string text = fmt::format("{:<36} {:<20} {:<28} {:>13} {:>16} {:>12}\n", "layer", "op",
                                 "output", "parameters", "macs", "bytes");
  for (const LayerReport& layer : report.layers) {
    text += fmt::format(
        "{:<36} {:<20} {:<28} {:>13} {:>16} {:>12}\n", layer.node.substr(0, 36), layer.op,
        fmt::format("{}", fmt::join(layer.output_shapes, " ")).substr(0, 28),
        Grouped(layer.parameters), Grouped(layer.macs), Grouped(layer.activation_bytes));
  }
  return text;
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
  text += fmt::format("parameters        {}\nweights           {}\n", Grouped(report.parameters),
                      Megabytes(report.weight_bytes));
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
