#include "common/ir/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "common/base/status.h"
#include "common/ir/hash.h"

namespace quench {
namespace {

class Comparison {
 public:
  Comparison(const Graph& a, const Graph& b) : symbols_a_(*a.symbols), symbols_b_(*b.symbols) {}

  std::string Graphs(const Graph& a, const Graph& b);

 private:
  bool Same(Dim a, Dim b) { return symbols_b_.Import(symbols_a_, a, {}) == b; }
  bool Same(const std::vector<Dim>& a, const std::vector<Dim>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](Dim x, Dim y) { return Same(x, y); });
  }
  bool Same(const Type& a, const Type& b) {
    return a.kind == b.kind && a.dtype == b.dtype && a.ranked == b.ranked && Same(a.dims, b.dims) &&
           std::equal(a.element.begin(), a.element.end(), b.element.begin(), b.element.end(),
                      [&](const Type& x, const Type& y) { return Same(x, y); });
  }
  static bool Same(const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.dims() == b.dims() && a.strings() == b.strings() &&
           std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
  }
  static bool Same(double a, double b) {
    return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
  }
  std::string Values(const Value& a, const Value& b);
  std::string Attributes(const Attribute& a, const Attribute& b);
  std::string Nodes(const Graph& ga, const Node& a, const Graph& gb, const Node& b);

  const SymbolTable& symbols_a_;
  SymbolTable& symbols_b_;
};

std::string Ref(const Graph& graph, ValueId id) { return id == kNone ? "_" : graph.value(id).name; }

std::vector<std::string> Refs(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<std::string> names;
  for (ValueId id : ids) names.push_back(Ref(graph, id));
  return names;
}

std::string Comparison::Values(const Value& a, const Value& b) {
  const std::string value = "value `" + a.name + "`: ";
  if (!Same(a.type, b.type)) return value + "the types differ";
  if (a.elements.has_value() != b.elements.has_value())
    return value + "only one has known elements";
  if (a.elements && !Same(*a.elements, *b.elements)) return value + "the elements differ";
  if ((a.constant == nullptr) != (b.constant == nullptr)) return value + "only one is constant";
  if (a.constant != nullptr && !Same(a.constant->tensor, b.constant->tensor))
    return value + "the constants differ";
  return "";
}

std::string Comparison::Attributes(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return "the kinds differ";
  if (const auto* body = std::get_if<GraphPtr>(&a)) return Graphs(**body, *std::get<GraphPtr>(b));
  bool same = true;
  if (const auto* tensor = std::get_if<Tensor>(&a)) {
    same = Same(*tensor, std::get<Tensor>(b));
  } else if (const auto* type = std::get_if<Type>(&a)) {
    same = Same(*type, std::get<Type>(b));
  } else if (const auto* number = std::get_if<double>(&a)) {
    same = Same(*number, std::get<double>(b));
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&a)) {
    const auto& others = std::get<std::vector<double>>(b);
    same = std::equal(numbers->begin(), numbers->end(), others.begin(), others.end(),
                      [](double x, double y) { return Same(x, y); });
  } else if (const auto* integer = std::get_if<int64_t>(&a)) {
    same = *integer == std::get<int64_t>(b);
  } else if (const auto* text = std::get_if<std::string>(&a)) {
    same = *text == std::get<std::string>(b);
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&a)) {
    same = *integers == std::get<std::vector<int64_t>>(b);
  } else {
    same = std::get<std::vector<std::string>>(a) == std::get<std::vector<std::string>>(b);
  }
  return same ? "" : "the values differ";
}

std::string Comparison::Nodes(const Graph& ga, const Node& a, const Graph& gb, const Node& b) {
  const std::string node = "node `" + a.name + "`: ";
  if (a.name != b.name) return node + "the other is `" + b.name + "`";
  if (a.op != b.op || a.domain != b.domain || a.version != b.version)
    return node + "the operators differ";
  if (a.origin != b.origin) return node + "the origins differ";
  if (Refs(ga, a.inputs) != Refs(gb, b.inputs)) return node + "the inputs differ";
  if (Refs(ga, a.outputs) != Refs(gb, b.outputs)) return node + "the outputs differ";
  if (a.attributes.size() != b.attributes.size()) return node + "the numbers of attributes differ";
  for (const auto& [name, attribute] : a.attributes) {
    const Attribute* other = b.Find(name);
    if (other == nullptr) return node + "only one has attribute `" + name + "`";
    const std::string difference = Attributes(attribute, *other);
    if (!difference.empty()) return node + "attribute `" + name + "`: " + difference;
  }
  return "";
}

std::string Comparison::Graphs(const Graph& a, const Graph& b) {
  if (a.name != b.name || a.stage != b.stage) return "the names or stages differ";
  if (a.metadata != b.metadata) return "the metadata differ";
  if (Refs(a, a.inputs) != Refs(b, b.inputs)) return "the inputs differ";
  if (Refs(a, a.outputs) != Refs(b, b.outputs)) return "the outputs differ";
  if (a.nodes.size() != b.nodes.size())
    return fmt::format("{} and {} nodes", a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const std::string difference = Nodes(a, a.nodes[i], b, b.nodes[i]);
    if (!difference.empty()) return difference;
  }
  std::map<std::string, ValueId> others;
  for (size_t i = 0; i < b.values.size(); ++i)
    others.emplace(b.values[i].name, static_cast<ValueId>(i));
  std::vector<bool> used(a.values.size(), false);
  const auto use = [&](ValueId id) {
    if (id != kNone) used[static_cast<size_t>(id)] = true;
  };
  std::for_each(a.inputs.begin(), a.inputs.end(), use);
  std::for_each(a.outputs.begin(), a.outputs.end(), use);
  for (const Node& node : a.nodes) {
    std::for_each(node.inputs.begin(), node.inputs.end(), use);
    std::for_each(node.outputs.begin(), node.outputs.end(), use);
  }
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (!used[i]) continue;
    const auto other = others.find(a.values[i].name);
    if (other == others.end()) return "only one has value `" + a.values[i].name + "`";
    const std::string difference = Values(a.values[i], b.value(other->second));
    if (!difference.empty()) return difference;
  }
  return "";
}

std::string SymbolDifference(const SymbolTable& a, const SymbolTable& b) {
  for (SymbolId id = 0; id < a.size(); ++id) {
    const Symbol& symbol = a.at(id);
    if (symbol.is_expression()) continue;
    const std::optional<SymbolId> other = b.Find(symbol.name);
    if (!other) return "only one has symbol `" + symbol.name + "`";
    const Symbol& found = b.at(*other);
    const bool same_range = symbol.min == found.min && symbol.max == found.max &&
                            symbol.multiple_of == found.multiple_of &&
                            symbol.definition.index() == found.definition.index();
    const auto* axis = std::get_if<InputAxis>(&symbol.definition);
    const bool same_axis =
        axis == nullptr || !found.is_input() || *axis == std::get<InputAxis>(found.definition);
    if (!same_range || !same_axis) return "symbol `" + symbol.name + "`: the definitions differ";
  }
  return "";
}

}  // namespace

std::string FirstDifference(const Graph& a, const Graph& b) {
  std::string difference = SymbolDifference(*a.symbols, *b.symbols);
  if (difference.empty()) difference = SymbolDifference(*b.symbols, *a.symbols);
  return difference.empty() ? Comparison(a, b).Graphs(a, b) : difference;
}

}  // namespace quench
