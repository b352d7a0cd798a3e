#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "services/analyser/partition.h"

namespace quench::analyser {
namespace {

std::string OperatorsText(const std::map<std::string, int64_t>& operators) {
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [op, count] : operators) sorted.emplace_back(-count, op);
  std::sort(sorted.begin(), sorted.end());
  constexpr size_t kShown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(sorted.size(), kShown); ++i)
    text += fmt::format("{}{} {}", i > 0 ? ", " : "", -sorted[i].first, sorted[i].second);
  if (sorted.size() > kShown) text += ", ...";
  return text;
}

}  // namespace

std::string ToTable(const PartitionReport& report) {
  const auto counted = [](size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string text =
      fmt::format("{} for {}, {} {}", counted(report.parts.size(), "part"), report.backend,
                  counted(report.left.size(), "node"), report.left.size() == 1 ? "stays" : "stay");
  if (report.simplified > 0) text += fmt::format(", {} were simplified", report.simplified);
  text += "\n";
  if (!report.parts.empty()) {
    text += fmt::format("  {:<20} {:>6} {:>16} {:>7} {:>8}  operators\n", "part", "nodes", "MACs",
                        "inputs", "outputs");
  }
  for (const PartitionPart& part : report.parts) {
    text += fmt::format("  {:<20} {:>6} {:>16} {:>7} {:>8}  {}\n", part.name, part.nodes, part.macs,
                        part.inputs.size(), part.outputs.size(), OperatorsText(part.operators));
  }
  // Alike ones in one line.
  std::map<std::pair<std::string, std::string>, int64_t> left;
  for (const LeftNode& node : report.left) ++left[{node.op, node.reason}];
  for (const auto& [key, count] : left)
    text += fmt::format("  stays: {} {}: {}\n", count, key.first, key.second);
  return text;
}

std::string ToJson(const PartitionReport& report) {
  nlohmann::json parts = nlohmann::json::array(), left = nlohmann::json::array();
  for (const PartitionPart& part : report.parts) {
    parts.push_back({{"name", part.name},
                     {"nodes", part.nodes},
                     {"macs", part.macs},
                     {"operators", part.operators},
                     {"inputs", part.inputs},
                     {"outputs", part.outputs}});
  }
  for (const LeftNode& node : report.left)
    left.push_back({{"node", node.node}, {"op", node.op}, {"reason", node.reason}});
  const nlohmann::json json = {{"backend", report.backend},
                               {"graph_count", report.parts.size() + 1},
                               {"subgraph_count", report.parts.size()},
                               {"parts", parts},
                               {"left", left},
                               {"simplified", report.simplified}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace quench::analyser
