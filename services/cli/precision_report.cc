#include "services/cli/precision_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "services/cli/budget.h"

namespace quench::cli {
namespace {

std::string BudgetText(const PrecisionReport& report) {
  std::vector<std::string> parts;
  if (report.budget.max_drop)
    parts.push_back(fmt::format("drop {:g} % at most", 100 * *report.budget.max_drop));
  if (report.budget.min_sqnr_db)
    parts.push_back(fmt::format("SQNR {:g} dB at least", *report.budget.min_sqnr_db));
  return fmt::format("{}{}", fmt::join(parts, ", "), report.default_budget ? " (the default)" : "");
}

// "int8 for 20 layers, bf16 for 3".
std::string CountsText(const PrecisionReport& report) {
  std::vector<std::string> parts;
  for (const Precision type :
       {Precision::kInt8, Precision::kBF16, Precision::kF16, Precision::kF32}) {
    const auto count = std::count(report.types.layers.begin(), report.types.layers.end(), type);
    if (count > 0) parts.push_back(fmt::format("{} {}", count, PrecisionName(type)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Why a layer has its type: the budget, or types that it cannot have.
std::string ReasonOf(const PrecisionReport& report, size_t layer) {
  std::string reason =
      layer < report.types.reasons.size() ? report.types.reasons[layer] : std::string();
  for (const auto& [type, why] : report.layers[layer].why_not)
    reason += fmt::format("{}no {}: {}", reason.empty() ? "" : "; ", PrecisionName(type), why);
  return reason;
}

std::string TimeText(const PrecisionLayer& layer, Precision type) {
  const auto time = layer.microseconds.find(type);
  return time == layer.microseconds.end() ? "-" : fmt::format("{:.1f}", time->second);
}

nlohmann::json BudgetToJson(const PrecisionReport& report) {
  nlohmann::json json = {{"default", report.default_budget}};
  if (report.budget.max_drop) json["max_drop"] = *report.budget.max_drop;
  if (report.budget.min_sqnr_db) json["min_sqnr_db"] = *report.budget.min_sqnr_db;
  return json;
}

}  // namespace

std::string PrecisionText(const PrecisionReport& report) {
  std::string text =
      fmt::format("  types    {} of {} layers; other operators {}\n", CountsText(report),
                  report.layers.size(), PrecisionName(report.types.others));
  for (const PrecisionBuild& build : report.builds) {
    text += fmt::format("  {:<8} {:.3f} ms{}{}{}\n", build.name, build.milliseconds,
                        build.cost ? ", SQNR " + quantizer::CostText(*build.cost) : "",
                        build.keeps_budget ? "" : ", outside the budget",
                        build.name == report.chosen ? ": chosen" : "");
  }
  text += report.samples > 0
              ? fmt::format("  accuracy {} on {} samples; the budget: {}\n",
                            report.written ? "SQNR " + quantizer::CostText(*report.written)
                                           : "not measured",
                            report.samples, BudgetText(report))
              : std::string("  accuracy not measured: there is no data (--evaluation-data)\n");
  if (!report.integers) {
    text +=
        "  int8     not tried: its ranges come from --calibration-data, --calibration or "
        "--calibration-random\n";
  }
  size_t width = 5;
  for (const PrecisionLayer& layer : report.layers) width = std::max(width, layer.name.size());
  width = std::min<size_t>(width, 60);
  text += fmt::format("  {:<{}} type {:>8} {:>8} {:>8}{}\n", "layer", width, "f32 us", "f16 us",
                      "bf16 us", report.integers ? "  int8 us" : "");
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const PrecisionLayer& layer = report.layers[i];
    text += fmt::format("  {:<{}} {:<4}", layer.name, width, PrecisionName(report.types.layers[i]));
    for (const Precision type : kPrecisions) {
      if (type != Precision::kInt8 || report.integers)
        text += fmt::format(" {:>8}", TimeText(layer, type));
    }
    const std::string reason = ReasonOf(report, i);
    text += reason.empty() ? "\n" : "  " + reason + "\n";
  }
  return text;
}

nlohmann::json PrecisionToJson(const PrecisionReport& report) {
  nlohmann::json builds = nlohmann::json::array(), layers = nlohmann::json::array();
  for (const PrecisionBuild& build : report.builds) {
    nlohmann::json json = {{"name", build.name},
                           {"milliseconds", build.milliseconds},
                           {"keeps_budget", build.keeps_budget}};
    if (build.cost) json["cost"] = CostToJson(*build.cost);
    builds.push_back(json);
  }
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const PrecisionLayer& layer = report.layers[i];
    nlohmann::json times = nlohmann::json::object();
    for (const auto& [type, time] : layer.microseconds)
      times[std::string(PrecisionName(type))] = time;
    layers.push_back({{"node", layer.name},
                      {"op", layer.op},
                      {"type", PrecisionName(report.types.layers[i])},
                      {"microseconds", times},
                      {"reason", ReasonOf(report, i)}});
  }
  nlohmann::json json = {
      {"chosen", report.chosen},   {"builds", builds},
      {"layers", layers},          {"others", PrecisionName(report.types.others)},
      {"samples", report.samples}, {"int8_tried", report.integers}};
  if (report.samples > 0) json["budget"] = BudgetToJson(report);
  if (report.written) json["cost"] = CostToJson(*report.written);
  return json;
}

}  // namespace quench::cli
