#include "services/analyser/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/pass.h"

namespace quench::analyser {
namespace {

constexpr int kStays = -1;

// The part of each node, or kStays; `reasons` of those that stay.
std::vector<int> PartsOf(const Graph& graph, const Backend& backend,
                         std::vector<std::string>& reasons) {
  // Changes from a part to a node that stays and back, at most, on paths that end before or in a value.
  std::vector<int> level(graph.values.size(), 0);
  std::vector<bool> outside(graph.values.size(), false);  // of nodes that stay, behind some part
  std::vector<bool> behind(graph.values.size(), false);   // something of a part is before it
  std::vector<int> parts(graph.nodes.size(), kStays);
  reasons.assign(graph.nodes.size(), "");
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const ops::OpDef* op = ops::FindOp(node.op);
    reasons[i] = op != nullptr && op->kind == ops::OpKind::kControl ? "it has bodies"
                                                                    : backend.refuses(graph, node);
    const bool stays = !reasons[i].empty();
    int own = 0;
    bool after = !stays;
    for (const ValueId id : node.inputs) {
      if (id == kNone) continue;
      const auto at = static_cast<size_t>(id);
      own = std::max(own, level[at] + (!stays && outside[at] ? 1 : 0));
      after = after || behind[at];
    }
    if (!stays) parts[i] = own;
    for (const ValueId id : node.outputs) {
      if (id == kNone) continue;
      level[static_cast<size_t>(id)] = own;
      behind[static_cast<size_t>(id)] = after;
      outside[static_cast<size_t>(id)] = stays && after;
    }
  }
  return parts;
}

int64_t MacsOf(const Graph& graph, const Node& node) {
  const ops::OpDef* op = ops::FindOp(node.op);
  if (op == nullptr || op->macs == nullptr) return 0;
  const Dim macs = op->macs(ops::ContextOf(graph, node));
  return macs.is_static() ? macs.value() : graph.symbols->BoundsOf(macs).min;
}

bool HasMacs(const Node& node) {
  const ops::OpDef* op = ops::FindOp(node.op);
  return op != nullptr && op->macs != nullptr;
}

// Parts that are not worth it stay; the others are numbered from 0.
void DropParts(const Graph& graph, const PartitionOptions& options, std::vector<int>& parts,
               std::vector<std::string>& reasons) {
  std::map<int, std::vector<size_t>> members;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] != kStays) members[parts[i]].push_back(i);
  }
  int next = 0;
  for (const auto& [part, nodes] : members) {
    std::string reason;
    const bool macs =
        std::any_of(nodes.begin(), nodes.end(), [&](size_t i) { return HasMacs(graph.nodes[i]); });
    if (static_cast<int64_t>(nodes.size()) < options.min_nodes) {
      reason = fmt::format("its part would have {} nodes", nodes.size());
    } else if (options.remove_no_mac_subgraphs && !macs) {
      reason = "its part would have no multiplications";
    }
    for (const size_t i : nodes) {
      parts[i] = reason.empty() ? next : kStays;
      reasons[i] = reason;
    }
    if (reason.empty()) ++next;
  }
}

// One part as a node whose body holds its nodes. `used` says for each value whether something outside
// reads it.
class PartBuilder {
 public:
  PartBuilder(const Graph& graph, std::string name, const std::string& backend) : graph_(graph) {
    node_.op = "q.partition";
    node_.name = std::move(name);
    node_.attributes["backend"] = backend;
    body_.name = node_.name;
    body_.symbols = graph.symbols;
    body_.stage = graph.stage;
  }

  void Add(const Node& node, const std::vector<bool>& used) {
    Node copy = node;
    for (ValueId& id : copy.inputs) id = id == kNone ? kNone : Inner(id);
    for (ValueId& id : copy.outputs) {
      if (id == kNone) continue;
      const ValueId outer = id;
      id = AddInner(outer);
      if (!used[static_cast<size_t>(outer)]) continue;
      node_.outputs.push_back(outer);
      body_.outputs.push_back(id);
    }
    body_.nodes.push_back(std::move(copy));
    for (const ValueId id : body_.nodes.back().outputs) {
      if (id != kNone) body_.value(id).producer = static_cast<NodeId>(body_.nodes.size()) - 1;
    }
  }

  Node Finish() {
    node_.attributes["body"] = std::make_shared<const Graph>(std::move(body_));
    return std::move(node_);
  }

 private:
  ValueId AddInner(ValueId outer) {
    const Value& value = graph_.value(outer);
    const ValueId id = body_.AddValue(value.name, value.type);
    body_.value(id).elements = value.elements;
    inner_[outer] = id;
    return id;
  }

  // An operand of a node of the part: a constant moves in, anything else from outside is an input.
  ValueId Inner(ValueId outer) {
    const auto found = inner_.find(outer);
    if (found != inner_.end()) return found->second;
    const ValueId id = AddInner(outer);
    if (graph_.value(outer).constant != nullptr) {
      body_.value(id).constant = graph_.value(outer).constant;
    } else {
      body_.inputs.push_back(id);
      node_.inputs.push_back(outer);
    }
    return id;
  }

  const Graph& graph_;
  Node node_;
  Graph body_;
  std::map<ValueId, ValueId> inner_;
};

// For each value, whether a node of another part, one that stays, or nobody but the caller reads it.
std::vector<bool> UsedOutside(const Graph& graph, const std::vector<int>& parts) {
  std::vector<bool> used(graph.values.size(), false);
  for (const ValueId id : graph.outputs) used[static_cast<size_t>(id)] = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].inputs) {
      if (id == kNone) continue;
      const NodeId producer = graph.value(id).producer;
      if (producer == kNone) continue;
      if (parts[i] == kStays || parts[i] != parts[static_cast<size_t>(producer)])
        used[static_cast<size_t>(id)] = true;
    }
  }
  return used;
}

// `graph` with its parts as nodes, in topological order.
Graph WithParts(Graph graph, const std::vector<int>& parts, const std::string& backend) {
  const std::vector<bool> used = UsedOutside(graph, parts);
  std::map<int, PartBuilder> builders;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (parts[i] == kStays) continue;
    const auto [it, fresh] =
        builders.try_emplace(parts[i], graph, fmt::format("{}_{}", backend, parts[i]), backend);
    it->second.Add(graph.nodes[i], used);
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (parts[i] == kStays) nodes.push_back(std::move(graph.nodes[i]));
  }
  for (auto& [part, builder] : builders) nodes.push_back(builder.Finish());
  graph.nodes = std::move(nodes);
  for (Value& value : graph.values) value.producer = kNone;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].outputs) {
      if (id != kNone) graph.value(id).producer = static_cast<NodeId>(i);
    }
  }
  graph.Compact();
  return graph;
}

void Describe(const Graph& graph, PartitionReport& report) {
  for (const Node& node : graph.nodes) {
    if (node.op != "q.partition") continue;
    const GraphPtr body = node.Body("body");
    PartitionPart part{node.name, static_cast<int64_t>(body->nodes.size()), 0, {}, {}, {}};
    for (const Node& inner : body->nodes) {
      part.macs += MacsOf(*body, inner);
      ++part.operators[inner.op];
    }
    for (const ValueId id : body->inputs) part.inputs.push_back(body->value(id).name);
    for (const ValueId id : body->outputs) part.outputs.push_back(body->value(id).name);
    report.parts.push_back(std::move(part));
  }
}

}  // namespace

absl::StatusOr<Partitioned> PartitionGraph(Graph graph, const Backend& backend,
                                           const PartitionOptions& options,
                                           const StepContext& context) {
  if (graph.stage == Stage::kImported)
    return InvalidArgument("the module is at stage `imported`; partitions are made of `canonical`");
  QUENCH_ASSIGN_OR_RETURN(graph, passes::InlinePartitions(std::move(graph)));
  Partitioned result;
  result.report.backend = backend.name;
  std::tie(graph, result.report.simplified) = SimplifyForPartition(std::move(graph), options);
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));
  QUENCH_RETURN_IF_ERROR(context.Check());
  std::vector<std::string> reasons;
  std::vector<int> parts = PartsOf(graph, backend, reasons);
  DropParts(graph, options, parts, reasons);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (parts[i] == kStays)
      result.report.left.push_back({graph.nodes[i].name, graph.nodes[i].op, reasons[i]});
  }
  result.graph = WithParts(std::move(graph), parts, backend.name);
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(result.graph));
  Describe(result.graph, result.report);
  return result;
}

std::vector<std::string> SubgraphNames(const Graph& graph) {
  std::vector<std::string> names;
  ForEachGraph(graph, [&](const Graph& each) {
    if (&each != &graph) names.push_back(each.name);
  });
  return names;
}

std::vector<std::string> PartitionBackends(const Graph& graph) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes) {
    if (node.op == "q.partition") names.insert(node.String("backend", ""));
  }
  return {names.begin(), names.end()};
}

}  // namespace quench::analyser
