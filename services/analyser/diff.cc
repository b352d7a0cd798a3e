#include "services/analyser/diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "services/analyser/json_number.h"
#include "services/analyser/nodes.h"
#include "services/analyser/table_text.h"

namespace quench::analyser {
namespace {

using NodeKey = std::pair<std::string, std::string>;  // graph, name

std::string Change(const std::string& what, const std::string& from, const std::string& to) {
  return fmt::format("{}: {} -> {}", what, from.empty() ? "none" : from, to.empty() ? "none" : to);
}

// One line for each place at which two lists differ.
void CompareLists(const char* what, const std::vector<std::string>& a,
                  const std::vector<std::string>& b, std::vector<std::string>& changes) {
  const auto at = [](const std::vector<std::string>& list, size_t i) {
    return i < list.size() ? list[i] : "";
  };
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (at(a, i) != at(b, i))
      changes.push_back(Change(fmt::format("{} {}", what, i), at(a, i), at(b, i)));
  }
}

std::vector<std::string> NamesOf(const std::vector<ValueFacts>& values) {
  std::vector<std::string> names;
  for (const ValueFacts& value : values) names.push_back(value.name);
  return names;
}

std::vector<std::string> TypesOf(const std::vector<ValueFacts>& values) {
  std::vector<std::string> types;
  for (const ValueFacts& value : values) types.push_back(value.type);
  return types;
}

std::vector<std::string> DeclarationsOf(const std::vector<ValueFacts>& values) {
  std::vector<std::string> texts;
  for (const ValueFacts& value : values) texts.push_back(value.name + ": " + value.type);
  return texts;
}

std::string OperatorOf(const NodeFacts& node) {
  return node.domain.empty() ? node.op : node.domain + "." + node.op;
}

std::vector<std::string> ChangesOf(const NodeFacts& a, const NodeFacts& b) {
  std::vector<std::string> changes;
  if (OperatorOf(a) != OperatorOf(b)) changes.push_back(Change("op", OperatorOf(a), OperatorOf(b)));
  std::map<std::string, std::pair<std::string, std::string>> attributes;
  for (const auto& [name, value] : a.attributes) attributes[name].first = value;
  for (const auto& [name, value] : b.attributes) attributes[name].second = value;
  for (const auto& [name, values] : attributes) {
    if (values.first != values.second) changes.push_back(Change(name, values.first, values.second));
  }
  CompareLists("input", NamesOf(a.inputs), NamesOf(b.inputs), changes);
  CompareLists("output", TypesOf(a.outputs), TypesOf(b.outputs), changes);
  return changes;
}

std::map<NodeKey, const NodeFacts*> ByName(const ModuleFacts& facts) {
  std::map<NodeKey, const NodeFacts*> nodes;
  for (const NodeFacts& node : facts.nodes) nodes[{node.graph, node.name}] = &node;
  return nodes;
}

void CompareNodes(const ModuleFacts& reference, const ModuleFacts& other, ModuleDiff& diff) {
  const auto ours = ByName(reference), theirs = ByName(other);
  for (const NodeFacts& node : reference.nodes) {
    const auto found = theirs.find({node.graph, node.name});
    if (found == theirs.end()) {
      diff.reference_only.push_back({node.graph, node.name, OperatorOf(node), {}});
      continue;
    }
    std::vector<std::string> changes = ChangesOf(node, *found->second);
    if (!changes.empty())
      diff.changed.push_back({node.graph, node.name, OperatorOf(node), std::move(changes)});
  }
  for (const NodeFacts& node : other.nodes) {
    if (!ours.contains({node.graph, node.name}))
      diff.other_only.push_back({node.graph, node.name, OperatorOf(node), {}});
  }
}

using Weights = std::map<NodeKey, const Tensor*>;

void CollectWeights(const Graph& graph, const std::string& where, Weights& weights) {
  for (const Value& value : graph.values) {
    if (value.constant != nullptr) weights[{where, value.name}] = &value.constant->tensor;
  }
  for (const Node& node : graph.nodes) {
    for (const auto& [name, attribute] : node.attributes) {
      const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
      if (body != nullptr && *body != nullptr)
        CollectWeights(**body, fmt::format("{}/{}.{}", where, node.name, name), weights);
    }
  }
}

std::string TypeOf(const Tensor& tensor) {
  return fmt::format("{}[{}]", DataTypeName(tensor.dtype()), fmt::join(tensor.dims(), ", "));
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == DataType::kString ? a.strings() == b.strings()
                                        : std::ranges::equal(a.bytes(), b.bytes());
}

void CountDifferences(const Tensor& a, const Tensor& b, WeightChange& change) {
  change.elements = a.size();
  if (a.dtype() == DataType::kString || IsComplex(a.dtype())) {
    change.differing = change.elements;  // no numbers to subtract
    return;
  }
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.FloatAt(i), y = b.FloatAt(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    ++change.differing;
    if (std::isfinite(x - y))
      change.max_difference = std::max(change.max_difference, std::abs(x - y));
  }
}

absl::Status CompareWeights(const Graph& reference, const Graph& other, ModuleDiff& diff,
                            const StepContext& context) {
  Weights ours, theirs;
  CollectWeights(reference, "main", ours);
  CollectWeights(other, "main", theirs);
  for (const auto& [key, tensor] : ours) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    WeightChange change{
        .graph = key.first, .name = key.second, .type = TypeOf(*tensor), .other_type = {}};
    const auto found = theirs.find(key);
    if (found != theirs.end()) {
      change.other_type = TypeOf(*found->second);
      if (change.type == change.other_type) {
        if (SameBytes(*tensor, *found->second)) continue;
        CountDifferences(*tensor, *found->second, change);
        if (change.differing == 0) continue;  // -0, or another NaN
      }
    }
    diff.weights.push_back(std::move(change));
  }
  for (const auto& [key, tensor] : theirs) {
    if (!ours.contains(key))
      diff.weights.push_back(
          {.graph = key.first, .name = key.second, .type = "", .other_type = TypeOf(*tensor)});
  }
  return absl::OkStatus();
}

std::string PlaceOf(const std::string& graph, const std::string& name) {
  return graph == "main" ? name : fmt::format("{} in {}", name, graph);
}

nlohmann::json NodesToJson(const std::vector<NodeChange>& nodes) {
  nlohmann::json list = nlohmann::json::array();
  for (const NodeChange& node : nodes) {
    nlohmann::json entry = {{"graph", node.graph}, {"name", node.name}, {"op", node.op}};
    if (!node.changes.empty()) entry["changes"] = node.changes;
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

absl::StatusOr<ModuleDiff> Diff(const Graph& reference, const Graph& other,
                                const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const ModuleFacts ours, Introspect(reference, {}));
  QUENCH_ASSIGN_OR_RETURN(const ModuleFacts theirs, Introspect(other, {}));
  ModuleDiff diff;
  diff.fingerprint = ours.fingerprint;
  diff.other_fingerprint = theirs.fingerprint;
  diff.equal = ours.fingerprint == theirs.fingerprint;
  diff.equal_structure = ours.structure_hash == theirs.structure_hash;
  CompareLists("input", DeclarationsOf(ours.inputs), DeclarationsOf(theirs.inputs), diff.interface);
  CompareLists("output", DeclarationsOf(ours.outputs), DeclarationsOf(theirs.outputs),
               diff.interface);
  CompareNodes(ours, theirs, diff);
  QUENCH_RETURN_IF_ERROR(CompareWeights(reference, other, diff, context));
  return diff;
}

std::string ToTable(const ModuleDiff& diff) {
  std::string text;
  for (const std::string& line : diff.interface) text += "~ " + line + "\n";
  for (const NodeChange& node : diff.reference_only)
    text += fmt::format("- {} {}\n", node.op, PlaceOf(node.graph, node.name));
  for (const NodeChange& node : diff.other_only)
    text += fmt::format("+ {} {}\n", node.op, PlaceOf(node.graph, node.name));
  for (const NodeChange& node : diff.changed) {
    text += fmt::format("~ {} {}\n", node.op, PlaceOf(node.graph, node.name));
    for (const std::string& change : node.changes) text += fmt::format("    {}\n", change);
  }
  for (const WeightChange& weight : diff.weights) {
    const std::string place = PlaceOf(weight.graph, weight.name);
    if (weight.other_type.empty()) {
      text += fmt::format("- weight {}: {}\n", place, weight.type);
    } else if (weight.type.empty()) {
      text += fmt::format("+ weight {}: {}\n", place, weight.other_type);
    } else if (weight.type != weight.other_type) {
      text += fmt::format("~ weight {}: {} -> {}\n", place, weight.type, weight.other_type);
    } else {
      text +=
          fmt::format("~ weight {}: {} of {} elements differ, by {:.4g} at most\n", place,
                      Grouped(weight.differing), Grouped(weight.elements), weight.max_difference);
    }
  }
  text += diff.equal             ? "equal: structure and weights, whatever the names\n"
          : diff.equal_structure ? "equal structure, other weights\n"
                                 : "different structure\n";
  return text;
}

std::string ToJson(const ModuleDiff& diff) {
  nlohmann::json weights = nlohmann::json::array();
  for (const WeightChange& weight : diff.weights) {
    weights.push_back({{"graph", weight.graph},
                       {"name", weight.name},
                       {"type", weight.type},
                       {"other_type", weight.other_type},
                       {"elements", weight.elements},
                       {"differing", weight.differing},
                       {"max_difference", JsonNumber(weight.max_difference)}});
  }
  const nlohmann::json json = {{"equal", diff.equal},
                               {"equal_structure", diff.equal_structure},
                               {"fingerprint", diff.fingerprint},
                               {"other_fingerprint", diff.other_fingerprint},
                               {"interface", diff.interface},
                               {"reference_only", NodesToJson(diff.reference_only)},
                               {"other_only", NodesToJson(diff.other_only)},
                               {"changed", NodesToJson(diff.changed)},
                               {"weights", std::move(weights)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace quench::analyser
