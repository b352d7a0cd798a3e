// ModuleFacts as text for people and as JSON for scripts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "common/runner/open_sizes.h"
#include "services/analyser/json_number.h"
#include "services/analyser/nodes.h"
#include "services/analyser/table_text.h"

namespace quench::analyser {
namespace {

using Json = nlohmann::json;

Json FactsToJson(const std::vector<ValueFacts>& values) {
  Json list = Json::array();
  for (const ValueFacts& value : values) {
    list.push_back({{"name", value.name},
                    {"type", value.type},
                    {"bytes", value.bytes ? Json(*value.bytes) : Json()},
                    {"constant", value.constant}});
  }
  return list;
}

Json NodeToJson(const NodeFacts& node) {
  Json attributes = Json::object();
  for (const auto& [name, value] : node.attributes)
    attributes[name] = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  return {{"graph", node.graph},
          {"name", node.name},
          {"op", node.op},
          {"domain", node.domain},
          {"version", node.version},
          {"origin", node.origin},
          {"attributes", attributes},
          {"inputs", FactsToJson(node.inputs)},
          {"outputs", FactsToJson(node.outputs)}};
}

std::string Dumped(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string ValueLine(const char* what, const ValueFacts& value) {
  return fmt::format("  {:<10}  {}: {}, {} bytes{}\n", what, value.name, value.type,
                     value.bytes ? Grouped(*value.bytes) : "?", value.constant ? ", constant" : "");
}

std::string NodeText(const NodeFacts& node) {
  std::string text =
      fmt::format("{}{}  {}", node.domain.empty() ? "" : node.domain + ".", node.op, node.name);
  if (!node.origin.empty() && node.origin != node.name)
    text += fmt::format(" (from {})", node.origin);
  if (node.graph != "main") text += fmt::format(" in {}", node.graph);
  text += "\n";
  for (const ValueFacts& value : node.inputs) text += ValueLine("input", value);
  for (const ValueFacts& value : node.outputs) text += ValueLine("output", value);
  for (const auto& [name, value] : node.attributes)
    text += fmt::format("  {:<10}  {} = {}\n", "attribute", name, value);
  return text;
}

}  // namespace

std::string ToTable(const ModuleFacts& facts) {
  std::string text;
  for (const NodeFacts& node : facts.nodes) text += NodeText(node) + "\n";
  text +=
      fmt::format("module        {}\nstage         {}\ngraphs        {}, of which subgraphs {}\n",
                  facts.name, facts.stage, facts.graph_count, facts.subgraph_count);
  for (const ValueFacts& value : facts.inputs)
    text += fmt::format("input         {}: {}\n", value.name, value.type);
  for (const ValueFacts& value : facts.outputs)
    text += fmt::format("output        {}: {}\n", value.name, value.type);
  if (!facts.sizes.empty()) text += fmt::format("counted at    {}\n", SizesText(facts.sizes));
  if (!facts.sizes_wanted.empty()) text += fmt::format("? bytes       {}\n", facts.sizes_wanted);
  int64_t nodes = 0;
  for (const auto& [op, count] : facts.operators) nodes += count;
  text += fmt::format("nodes         {}, {} of them listed\noperators     {}\n", Grouped(nodes),
                      Grouped(static_cast<int64_t>(facts.nodes.size())), facts.operators.size());
  for (const auto& [op, count] : facts.operators)
    text += fmt::format("  {:<22} {:>6}\n", op, count);
  const auto flag = [&](const char* name, bool value) {
    text += fmt::format("{:<14}{}\n", name, value ? "yes" : "no");
  };
  flag("dynamic", facts.is_dynamic);
  flag("quantized", facts.is_quantized);
  flag("calibrated", facts.is_calibrated);
  flag("split tensors", facts.is_split_tensors);
  flag("partitioned", !facts.partition_backends.empty());
  text +=
      fmt::format("fingerprint   {}\nstructure     {}\n", facts.fingerprint, facts.structure_hash);
  return text;
}

std::string ToJson(const ModuleFacts& facts) {
  Json nodes = Json::array();
  for (const NodeFacts& node : facts.nodes) nodes.push_back(NodeToJson(node));
  const Json report = {{"name", facts.name},
                       {"stage", facts.stage},
                       {"fingerprint", facts.fingerprint},
                       {"structure_hash", facts.structure_hash},
                       {"metadata", facts.metadata},
                       {"graph_count", facts.graph_count},
                       {"subgraph_count", facts.subgraph_count},
                       {"input_count", facts.inputs.size()},
                       {"output_count", facts.outputs.size()},
                       {"operators", facts.operators},
                       {"is_dynamic", facts.is_dynamic},
                       {"is_quantized", facts.is_quantized},
                       {"is_calibrated", facts.is_calibrated},
                       {"is_split_tensors", facts.is_split_tensors},
                       {"unfrozen_parameters", facts.unfrozen_parameters},
                       {"is_partitioned", !facts.partition_backends.empty()},
                       {"partition_backends", facts.partition_backends},
                       {"inputs", FactsToJson(facts.inputs)},
                       {"outputs", FactsToJson(facts.outputs)},
                       {"sizes", facts.sizes},
                       {"sizes_wanted", facts.sizes_wanted},
                       {"nodes", nodes}};
  return Dumped(report, 2) + "\n";
}

}  // namespace quench::analyser
