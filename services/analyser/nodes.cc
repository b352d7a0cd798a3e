#include "services/analyser/nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/near_names.h"
#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ir/metadata.h"
#include "common/ir/symbols_spelling.h"
#include "common/runner/inputs.h"
#include "common/runner/open_sizes.h"
#include "services/analyser/json_number.h"
#include "services/analyser/partition.h"
#include "services/analyser/sizes.h"

namespace quench::analyser {
namespace {

bool Matches(const std::string& pattern, const std::string& text) {
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

// Whether an operator, of ONNX or our own, quantizes or takes integers for weights.
bool IsQuantizing(const std::string& op) {
  static const auto* const ops =
      new std::set<std::string>{"ConvInteger",    "DequantizeLinear", "DynamicQuantizeLinear",
                                "MatMulInteger",  "QLinearConv",      "QLinearMatMul",
                                "QuantizeLinear", "q.average_pool",   "q.weight_only_matmul"};
  return ops->contains(op);
}

bool IsDynamic(const Graph& graph) {
  return std::any_of(graph.values.begin(), graph.values.end(), [](const Value& value) {
    const std::vector<Dim>& dims = value.type.dims;
    return value.type.kind == ValueKind::kTensor && value.type.ranked &&
           std::any_of(dims.begin(), dims.end(), [](Dim dim) { return !dim.is_static(); });
  });
}

std::string TextOf(const Type& type, const SymbolTable& symbols) {
  if (!type.known()) return "?";
  if (type.kind != ValueKind::kTensor) return "non-tensor";
  std::vector<std::string> dims;
  for (const Dim dim : type.dims) dims.push_back(SpelledOut(symbols, dim));
  return fmt::format("{}[{}]", DataTypeName(type.dtype),
                     type.ranked ? fmt::format("{}", fmt::join(dims, ", ")) : "?");
}

using Json = nlohmann::json;

// Tensors and bodies as what they are; their contents are `quench ir`'s.
struct AttributeJson {
  Json operator()(int64_t value) const { return value; }
  Json operator()(double value) const { return JsonNumber(value); }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const std::vector<int64_t>& value) const { return value; }
  Json operator()(const std::vector<double>& value) const {
    Json list = Json::array();
    for (const double each : value) list.push_back(JsonNumber(each));
    return list;
  }
  Json operator()(const std::vector<std::string>& value) const { return value; }
  Json operator()(const Tensor& value) const {
    return fmt::format("{}[{}]", DataTypeName(value.dtype()), fmt::join(value.dims(), ", "));
  }
  Json operator()(const GraphPtr& value) const {
    return fmt::format("graph of {} nodes", value == nullptr ? 0 : value->nodes.size());
  }
  Json operator()(const Type& value) const {
    return fmt::format("type {}", DataTypeName(value.dtype));
  }
};

class Collector {
 public:
  Collector(const NodesOptions& options, Sizes& sizes, ModuleFacts& facts)
      : options_(options), sizes_(sizes), facts_(facts) {}

  void Add(const Graph& graph, const std::string& where) {
    ++facts_.graph_count;
    facts_.is_dynamic = facts_.is_dynamic || IsDynamic(graph);
    for (const Node& node : graph.nodes) {
      const std::string op = node.domain.empty() ? node.op : node.domain + "." + node.op;
      ++facts_.operators[op];
      names_.insert(node.name);
      facts_.is_quantized = facts_.is_quantized || IsQuantizing(node.op);
      if (Wanted(node)) facts_.nodes.push_back(FactsOf(graph, node, where));
      for (const auto& [name, attribute] : node.attributes) {
        const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
        if (body == nullptr || *body == nullptr) continue;
        Add(**body, fmt::format("{}/{}.{}", where, node.name, name));
      }
    }
  }

  ValueFacts FactsOf(const Graph& graph, ValueId id) {
    const Value& value = graph.value(id);
    ValueFacts facts = {.name = value.name,
                        .type = TextOf(value.type, *graph.symbols),
                        .constant = value.constant != nullptr};
    if (!value.type.known() || value.type.kind != ValueKind::kTensor) return facts;
    if (facts_.sizes_wanted.empty() || value.type.is_static()) {
      facts.bytes = sizes_.Bytes(value.type);
    } else {
      facts.bytes = std::nullopt;
    }
    return facts;
  }

  // Patterns that no node matched.
  absl::Status Finish() const {
    StatusCollector problems;
    for (const std::string& pattern : options_.ops) {
      if (matched_ops_.contains(pattern)) continue;
      std::vector<std::string> known;
      for (const auto& [op, count] : facts_.operators) known.push_back(op);
      problems.Add(
          absl::NotFoundError(fmt::format("no node has an operator `{}`; there are {}{}", pattern,
                                          fmt::join(known, ", "), DidYouMean(pattern, known))));
    }
    for (const std::string& pattern : options_.names) {
      if (!matched_names_.contains(pattern))
        problems.Add(
            absl::NotFoundError(fmt::format("no node is named `{}`{}", pattern,
                                            DidYouMean(pattern, {names_.begin(), names_.end()}))));
    }
    return problems.Finish();
  }

 private:
  // Both lists are looked through to the end: each pattern must match somewhere.
  bool Wanted(const Node& node) {
    bool op = options_.ops.empty(), name = options_.names.empty();
    for (const std::string& pattern : options_.ops) {
      if (!Matches(pattern, node.op)) continue;
      matched_ops_.insert(pattern);
      op = true;
    }
    for (const std::string& pattern : options_.names) {
      if (!Matches(pattern, node.name) && !Matches(pattern, node.origin)) continue;
      matched_names_.insert(pattern);
      name = true;
    }
    return op && name;
  }

  NodeFacts FactsOf(const Graph& graph, const Node& node, const std::string& where) {
    NodeFacts facts;
    facts.graph = where;
    facts.name = node.name;
    facts.op = node.op;
    facts.domain = node.domain;
    facts.version = node.version;
    facts.origin = node.origin;
    for (const auto& [name, value] : node.attributes)
      facts.attributes[name] =
          std::visit(AttributeJson(), value).dump(-1, ' ', false, Json::error_handler_t::replace);
    for (const ValueId id : node.inputs) {
      if (id != kNone) facts.inputs.push_back(FactsOf(graph, id));
    }
    for (const ValueId id : node.outputs) {
      if (id != kNone) facts.outputs.push_back(FactsOf(graph, id));
    }
    return facts;
  }

  const NodesOptions& options_;
  Sizes& sizes_;
  ModuleFacts& facts_;
  std::set<std::string> matched_ops_, matched_names_;
  std::set<std::string> names_;  // of all nodes
};

}  // namespace

absl::StatusOr<ModuleFacts> Introspect(const Graph& graph, const NodesOptions& options) {
  ModuleFacts facts;
  std::map<std::string, int64_t> of_inputs, chosen = options.sizes;
  for (const auto& [name, size] : chosen) {
    const std::optional<SymbolId> symbol = graph.symbols->Find(name);
    if (symbol && graph.symbols->at(*symbol).is_input()) of_inputs[name] = size;
  }
  const absl::StatusOr<std::map<std::string, int64_t>> sizes_of_inputs =
      ChooseSizes(InputsOf(graph), of_inputs);
  if (sizes_of_inputs.ok()) {
    facts.sizes = *sizes_of_inputs;
    chosen.insert(facts.sizes.begin(), facts.sizes.end());
  } else {
    facts.sizes_wanted = MessageOf(sizes_of_inputs.status());
  }
  QUENCH_ASSIGN_OR_RETURN(Sizes sizes, Sizes::Of(graph, chosen));
  facts.name = graph.name;
  facts.stage = StageName(graph.stage);
  facts.fingerprint = Fingerprint(graph);
  facts.structure_hash = StructureHash(graph);
  facts.metadata = graph.metadata;
  facts.is_quantized = graph.stage == Stage::kQuantized;
  const auto flag = [&](const char* key) {
    const auto found = graph.metadata.find(key);
    return found != graph.metadata.end() && found->second == "true";
  };
  facts.is_calibrated = flag(kCalibratedKey);
  facts.is_split_tensors = flag(kSplitTensorsKey);
  facts.partition_backends = PartitionBackends(graph);
  for (const ValueId id : graph.inputs) {
    if (graph.metadata.contains(kUnfrozenKey + graph.value(id).name))
      facts.unfrozen_parameters.push_back(graph.value(id).name);
  }
  Collector collector(options, sizes, facts);
  collector.Add(graph, "main");
  facts.subgraph_count = facts.graph_count - 1;
  for (const ValueId id : graph.inputs) facts.inputs.push_back(collector.FactsOf(graph, id));
  for (const ValueId id : graph.outputs) facts.outputs.push_back(collector.FactsOf(graph, id));
  QUENCH_RETURN_IF_ERROR(collector.Finish());
  return facts;
}

}  // namespace quench::analyser
