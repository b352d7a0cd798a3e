#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "services/analyser/infer.h"
#include "services/analyser/json_number.h"
#include "services/analyser/table_text.h"

namespace quench::analyser {

std::string ToTable(const InferReport& report) {
  constexpr size_t kWidest = 44;
  TextTable table;
  for (const auto& [name, number] :
       {std::pair{"value", false}, std::pair{"operator", false}, std::pair{"type", false},
        std::pair{"min", true}, std::pair{"max", true}, std::pair{"mean", true},
        std::pair{"std", true}, std::pair{"zeros", true}, std::pair{"NaN", true},
        std::pair{"inf", true}, std::pair{"histogram", false}})
    table.AddColumn(name, number);
  for (const InferredValue& value : report.values) {
    const TensorStatistics& found = value.statistics;
    table.AddRow({CutInFront(value.name, kWidest) + (value.output ? " (output)" : ""), value.op,
                  value.type, fmt::format("{:.5g}", found.min), fmt::format("{:.5g}", found.max),
                  fmt::format("{:.5g}", found.mean), fmt::format("{:.5g}", found.std),
                  Grouped(found.zeros), Grouped(found.nan), Grouped(found.infinite),
                  "[" + Drawn(found.histogram) + "]"});
  }
  std::string text = table.Text();
  for (const std::string& name : report.absent)
    text += fmt::format("not seen: {}, which the code fuses or rewrites\n", name);
  return text;
}

std::string ToJson(const InferReport& report) {
  nlohmann::json values = nlohmann::json::array();
  for (const InferredValue& value : report.values) {
    const TensorStatistics& found = value.statistics;
    values.push_back({{"name", value.name},
                      {"node", value.node},
                      {"op", value.op},
                      {"type", value.type},
                      {"output", value.output},
                      {"elements", found.elements},
                      {"zeros", found.zeros},
                      {"nan", found.nan},
                      {"infinite", found.infinite},
                      {"min", JsonNumber(found.min)},
                      {"max", JsonNumber(found.max)},
                      {"mean", JsonNumber(found.mean)},
                      {"std", JsonNumber(found.std)},
                      {"histogram", found.histogram}});
  }
  const nlohmann::json json = {
      {"source", report.source}, {"values", std::move(values)}, {"absent", report.absent}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace quench::analyser
