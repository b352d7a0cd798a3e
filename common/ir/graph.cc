#include "common/ir/graph.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <queue>

#include "common/base/status.h"

namespace quench {
namespace {

// `base`, or `base_N` with the first N above those in use, given a function that calls back with
// every name.
template <typename ForEachName>
std::string UniqueName(const std::string& base, ForEachName&& for_each_name) {
  bool taken = false;
  uint64_t last = 0;
  for_each_name([&](const std::string& name) {
    if (name.size() < base.size() || name.compare(0, base.size(), base) != 0) return;
    if (name.size() == base.size()) {
      taken = true;
      return;
    }
    if (name[base.size()] != '_') return;
    const char* digits = name.data() + base.size() + 1;
    const char* end = name.data() + name.size();
    uint64_t number = 0;
    const auto [stop, error] = std::from_chars(digits, end, number);
    if (error == std::errc() && stop == end && number < UINT64_MAX) last = std::max(last, number);
  });
  return taken ? base + "_" + std::to_string(last + 1) : base;
}

std::string UniqueValueName(const Graph& graph, const std::string& name) {
  return UniqueName(name.empty() ? "v" : name, [&](auto&& see) {
    for (const Value& value : graph.values) see(value.name);
  });
}

std::string UniqueNodeName(const Graph& graph, const std::string& name) {
  return UniqueName(name, [&](auto&& see) {
    for (const Node& node : graph.nodes) see(node.name);
  });
}

// Nodes from which an output is reached.
std::vector<bool> LiveNodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes.size(), false);
  std::vector<NodeId> pending;
  const auto reach = [&](ValueId id) {
    if (id == kNone) return;
    const NodeId producer = graph.value(id).producer;
    if (producer == kNone || live[static_cast<size_t>(producer)]) return;
    live[static_cast<size_t>(producer)] = true;
    pending.push_back(producer);
  };
  for (ValueId id : graph.outputs) reach(id);
  while (!pending.empty()) {
    const NodeId id = pending.back();
    pending.pop_back();
    for (ValueId input : graph.node(id).inputs) reach(input);
  }
  return live;
}

// Live nodes in topological order, ties by present position.
std::vector<NodeId> TopologicalOrder(const Graph& graph, const std::vector<bool>& live) {
  std::vector<int> waiting(graph.nodes.size(), 0);
  std::vector<std::vector<NodeId>> consumers(graph.nodes.size());
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  size_t live_count = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!live[i]) continue;
    ++live_count;
    for (ValueId input : graph.nodes[i].inputs) {
      if (input == kNone || graph.value(input).producer == kNone) continue;
      consumers[static_cast<size_t>(graph.value(input).producer)].push_back(static_cast<NodeId>(i));
      ++waiting[i];
    }
    if (waiting[i] == 0) ready.push(static_cast<NodeId>(i));
  }
  std::vector<NodeId> order;
  while (!ready.empty()) {
    const NodeId id = ready.top();
    ready.pop();
    order.push_back(id);
    for (NodeId consumer : consumers[static_cast<size_t>(id)]) {
      if (--waiting[static_cast<size_t>(consumer)] == 0) ready.push(consumer);
    }
  }
  QUENCH_CHECK(order.size() == live_count);  // else there is a cycle
  return order;
}

// Rewrites every dim of a type through `rewrite`.
template <typename Rewrite>
void RewriteDims(Type& type, Rewrite&& rewrite) {
  for (Dim& dim : type.dims) dim = rewrite(dim);
  for (Type& element : type.element) RewriteDims(element, rewrite);
}

Graph Rebase(const Graph& graph, const std::shared_ptr<SymbolTable>& table,
             const std::map<SymbolId, Dim>& replacements) {
  Graph result = graph;
  result.symbols = table;
  const auto rewrite = [&](Dim dim) { return table->Import(*graph.symbols, dim, replacements); };
  for (Value& value : result.values) {
    RewriteDims(value.type, rewrite);
    if (!value.elements) continue;
    for (Dim& dim : *value.elements) dim = rewrite(dim);
  }
  for (Node& node : result.nodes) {
    for (auto& [name, attribute] : node.attributes) {
      if (GraphPtr* body = std::get_if<GraphPtr>(&attribute)) {
        *body = std::make_shared<const Graph>(Rebase(**body, table, replacements));
      } else if (Type* type = std::get_if<Type>(&attribute)) {
        RewriteDims(*type, rewrite);
      }
    }
  }
  return result;
}

template <typename T>
const T* Get(const Node& node, const std::string& name) {
  const Attribute* attribute = node.Find(name);
  return attribute == nullptr ? nullptr : std::get_if<T>(attribute);
}

}  // namespace

bool Type::is_static() const {
  return kind == ValueKind::kTensor && ranked &&
         std::all_of(dims.begin(), dims.end(), [](Dim dim) { return dim.is_static(); });
}

const Attribute* Node::Find(const std::string& attribute) const {
  const auto it = attributes.find(attribute);
  return it == attributes.end() ? nullptr : &it->second;
}

int64_t Node::Int(const std::string& attribute, int64_t fallback) const {
  const int64_t* value = Get<int64_t>(*this, attribute);
  return value == nullptr ? fallback : *value;
}

double Node::Float(const std::string& attribute, double fallback) const {
  const double* value = Get<double>(*this, attribute);
  return value == nullptr ? fallback : *value;
}

std::string Node::String(const std::string& attribute, const std::string& fallback) const {
  const std::string* value = Get<std::string>(*this, attribute);
  return value == nullptr ? fallback : *value;
}

std::vector<int64_t> Node::Ints(const std::string& attribute) const {
  const auto* value = Get<std::vector<int64_t>>(*this, attribute);
  return value == nullptr ? std::vector<int64_t>() : *value;
}

std::vector<double> Node::Floats(const std::string& attribute) const {
  const auto* value = Get<std::vector<double>>(*this, attribute);
  return value == nullptr ? std::vector<double>() : *value;
}

GraphPtr Node::Body(const std::string& attribute) const {
  const GraphPtr* value = Get<GraphPtr>(*this, attribute);
  return value == nullptr ? nullptr : *value;
}

std::string_view StageName(Stage stage) {
  switch (stage) {
    case Stage::kImported:
      return "imported";
    case Stage::kCanonical:
      return "canonical";
    case Stage::kQuantized:
      return "quantized";
  }
  return "unknown";
}

ValueId Graph::AddValue(const std::string& value_name, Type type) {
  Value value;
  value.name = UniqueValueName(*this, value_name);
  value.type = std::move(type);
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size() - 1);
}

ValueId Graph::AddInput(const std::string& value_name, Type type) {
  const ValueId id = AddValue(value_name, std::move(type));
  inputs.push_back(id);
  return id;
}

ValueId Graph::AddConstant(const std::string& value_name, quench::Tensor tensor) {
  std::vector<Dim> dims(tensor.dims().begin(), tensor.dims().end());
  const ValueId id = AddValue(value_name, Type::Tensor(tensor.dtype(), std::move(dims)));
  auto constant = std::make_shared<Constant>();
  constant->tensor = std::move(tensor);
  value(id).constant = std::move(constant);
  return id;
}

NodeId Graph::AddNode(const std::string& op, const std::string& node_name,
                      std::vector<ValueId> node_inputs, int output_count,
                      std::map<std::string, Attribute> attributes) {
  const NodeId id = static_cast<NodeId>(nodes.size());
  Node node;
  node.name = UniqueNodeName(*this, node_name.empty() ? op : node_name);
  node.op = op;
  node.inputs = std::move(node_inputs);
  node.attributes = std::move(attributes);
  for (int i = 0; i < output_count; ++i) {
    const ValueId output = AddValue(i == 0 ? node.name : node.name + "." + std::to_string(i));
    value(output).producer = id;
    node.outputs.push_back(output);
  }
  nodes.push_back(std::move(node));
  return id;
}

std::optional<ValueId> Graph::FindValue(const std::string& value_name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == value_name) return static_cast<ValueId>(i);
  }
  return std::nullopt;
}

void Graph::ReplaceUses(ValueId from, ValueId to) {
  for (Node& node : nodes) std::replace(node.inputs.begin(), node.inputs.end(), from, to);
  if (from == to || !IsOutput(from)) return;
  const bool is_input = std::find(inputs.begin(), inputs.end(), to) != inputs.end();
  if (is_input || value(to).constant != nullptr || IsOutput(to)) return;
  std::swap(value(from).name, value(to).name);
  std::replace(outputs.begin(), outputs.end(), from, to);
}

bool Graph::IsOutput(ValueId id) const {
  return std::find(outputs.begin(), outputs.end(), id) != outputs.end();
}

int Graph::Compact() {
  const std::vector<NodeId> order = TopologicalOrder(*this, LiveNodes(*this));
  const int dropped = static_cast<int>(nodes.size() - order.size());

  std::vector<bool> used(values.size(), false);
  const auto use = [&](ValueId id) {
    if (id != kNone) used[static_cast<size_t>(id)] = true;
  };
  for (ValueId id : inputs) use(id);
  for (ValueId id : outputs) use(id);
  for (NodeId id : order) {
    for (ValueId input : node(id).inputs) use(input);
    for (ValueId output : node(id).outputs) use(output);
  }

  std::vector<NodeId> new_node(nodes.size(), kNone);
  for (size_t i = 0; i < order.size(); ++i) {
    new_node[static_cast<size_t>(order[i])] = static_cast<NodeId>(i);
  }
  std::vector<ValueId> new_value(values.size(), kNone);
  std::vector<Value> kept_values;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!used[i]) continue;
    new_value[i] = static_cast<ValueId>(kept_values.size());
    kept_values.push_back(std::move(values[i]));
    NodeId& producer = kept_values.back().producer;
    if (producer != kNone) producer = new_node[static_cast<size_t>(producer)];
  }
  const auto renumber = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) {
      if (id != kNone) id = new_value[static_cast<size_t>(id)];
    }
  };
  std::vector<Node> kept_nodes;
  kept_nodes.reserve(order.size());
  for (NodeId id : order) {
    kept_nodes.push_back(std::move(node(id)));
    renumber(kept_nodes.back().inputs);
    renumber(kept_nodes.back().outputs);
  }
  values = std::move(kept_values);
  nodes = std::move(kept_nodes);
  renumber(inputs);
  renumber(outputs);
  return dropped;
}

std::vector<int> Graph::UseCounts() const {
  std::vector<int> counts(values.size(), 0);
  const auto count = [&](ValueId id) {
    if (id != kNone) ++counts[static_cast<size_t>(id)];
  };
  for (const Node& node : nodes) std::for_each(node.inputs.begin(), node.inputs.end(), count);
  std::for_each(outputs.begin(), outputs.end(), count);
  return counts;
}

std::vector<bool> UsedSymbols(const Graph& graph) {
  const SymbolTable& table = *graph.symbols;
  std::vector<bool> used(static_cast<size_t>(table.size()), false);
  const auto use = [&](Dim dim) {
    if (!dim.is_static() && dim.symbol() < table.size())
      used[static_cast<size_t>(dim.symbol())] = true;
  };
  const auto use_type = [&](const Type& type, const auto& self) -> void {
    std::for_each(type.dims.begin(), type.dims.end(), use);
    for (const Type& element : type.element) self(element, self);
  };
  ForEachGraph(graph, [&](const Graph& g) {
    for (const Value& value : g.values) {
      use_type(value.type, use_type);
      if (value.elements) std::for_each(value.elements->begin(), value.elements->end(), use);
    }
    for (const Node& node : g.nodes) {
      for (const auto& [name, attribute] : node.attributes) {
        if (const Type* type = std::get_if<Type>(&attribute)) use_type(*type, use_type);
      }
    }
  });
  for (SymbolId id = table.size() - 1; id >= 0; --id) {  // operands have smaller ids
    if (!table.at(id).is_expression()) used[static_cast<size_t>(id)] = true;
    if (used[static_cast<size_t>(id)]) table.ForEachOperand(id, use);
  }
  return used;
}

absl::StatusOr<Graph> BindSymbols(const Graph& graph, const std::map<std::string, int64_t>& sizes) {
  std::map<SymbolId, Dim> replacements;
  StatusCollector problems;
  for (const auto& [name, size] : sizes) {
    const std::optional<SymbolId> id = graph.symbols->Find(name);
    if (!id || !graph.symbols->at(*id).is_input()) {
      problems.Add(InvalidArgument("there is no input size `{}`", name));
      continue;
    }
    const Symbol& symbol = graph.symbols->at(*id);
    if (size < symbol.min || size > symbol.max || size % symbol.multiple_of != 0) {
      problems.Add(InvalidArgument(
          "size `{}` is {}, the model takes {}..{}{}", name, size, symbol.min,
          symbol.max == kUnbounded ? "" : std::to_string(symbol.max),
          symbol.multiple_of == 1 ? "" : fmt::format(" in multiples of {}", symbol.multiple_of)));
      continue;
    }
    replacements[*id] = size;
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return Rebase(graph, std::make_shared<SymbolTable>(), replacements);
}

}  // namespace quench
