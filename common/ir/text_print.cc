#include <algorithm>

#include "common/base/overloaded.h"
#include "common/base/status.h"
#include "common/ir/constants.h"
#include "common/ir/hash.h"
#include "common/ir/quoting.h"
#include "common/ir/text.h"
#include "common/ir/text_elements.h"
#include "common/ir/text_lex.h"
#include "common/ir/text_parts.h"

namespace quench {
namespace {

std::string Name(const std::string& name) { return IsIdentifier(name) ? name : Quote(name); }

uint64_t TensorBytes(const Tensor& tensor) {
  uint64_t bytes = tensor.bytes().size();
  for (const std::string& text : tensor.strings()) bytes += text.size();
  return bytes;
}

// Joins f(item) with ", ".
template <typename Items, typename Format>
std::string Join(const Items& items, Format&& format) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + format(item);
  return text;
}

class Printer {
 public:
  Printer(const Graph& graph, const PrintOptions& options)
      : root_(graph), table_(*graph.symbols), options_(options) {}

  std::string Print() {
    text_ = "quench.ir 1\n";
    text_ += fmt::format("module {} {} ", Quote(root_.name), StageName(root_.stage));
    PrintBlock(root_, 0, true);
    text_ += "\n";
    return std::move(text_);
  }

 private:
  void Line(int indent, const std::string& line) {
    text_ += std::string(static_cast<size_t>(indent) * 2, ' ') + line + "\n";
  }

  void PrintBlock(const Graph& graph, int indent, bool outermost);
  void PrintSymbols(int indent);
  void PrintNode(const Graph& graph, const Node& node, int indent);
  void PrintAttributes(const Node& node, int indent);
  std::string Format(const Attribute& attribute, int indent);
  std::string FormatType(const Type& type) const;
  std::string FormatTensor(const Tensor& tensor) const;
  std::string FormatContents(const Tensor& tensor, const Constant* constant) const;
  // " : type holds [...]", as far as known and asked for.
  std::string Suffix(const Value& value, bool always) const;

  static std::string Ref(const Graph& graph, ValueId id) {
    if (id == kNone) return "_";
    if (id < 0 || static_cast<size_t>(id) >= graph.values.size()) return "%?";
    const std::string& name = graph.value(id).name;
    return "%" + (text::IsPlainValueName(name) ? name : Quote(name));
  }

  const Graph& root_;
  const SymbolTable& table_;
  const PrintOptions& options_;
  std::string text_;
};

std::string Printer::FormatType(const Type& type) const {
  const auto element = [&] { return type.element.empty() ? "?[*]" : FormatType(type.element[0]); };
  const std::string dtype =
      type.dtype == DataType::kUndefined ? "?" : std::string(DataTypeName(type.dtype));
  switch (type.kind) {
    case ValueKind::kSequence:
      return "sequence(" + element() + ")";
    case ValueKind::kOptional:
      return "optional(" + element() + ")";
    case ValueKind::kMap:
      return "map(" + dtype + ", " + element() + ")";
    case ValueKind::kTensor:
      break;
  }
  if (!type.ranked) return dtype + "[*]";
  return dtype + "[" + Join(type.dims, [&](Dim dim) { return table_.ToString(dim); }) + "]";
}

std::string Printer::Suffix(const Value& value, bool always) const {
  std::string suffix;
  if (!options_.types && !always) return suffix;
  if (value.type != Type{}) suffix = ": " + FormatType(value.type);
  if (value.elements && options_.types) {
    suffix +=
        " holds [" + Join(*value.elements, [&](Dim dim) { return table_.ToString(dim); }) + "]";
  }
  return suffix;
}

std::string Printer::FormatContents(const Tensor& tensor, const Constant* constant) const {
  // Strings have no place in blobs, so they are always spelled out.
  const bool inlined =
      TensorBytes(tensor) <= kMaxInlineBytes && (options_.constants || constant == nullptr);
  if (inlined || tensor.dtype() == DataType::kString) return text::FormatElements(tensor);
  const auto at = [](const std::vector<BlobRange>& location) {
    return " at " + Join(location, [](const BlobRange& range) {
             return fmt::format("{}[{}, {}]", Quote(range.blob), range.offset, range.size);
           });
  };
  if (options_.places != nullptr && WeightPlaces::IsLarge(tensor)) {
    const WeightPlaces::Place& place = options_.places->Of(tensor);
    return "sha256 " + Quote(place.digest) + at(place.location);
  }
  const bool known = constant != nullptr && !constant->digest.empty();
  const std::string text = "sha256 " + Quote(known ? constant->digest : TensorDigest(tensor));
  return constant == nullptr || constant->location.empty() ? text : text + at(constant->location);
}

std::string Printer::FormatTensor(const Tensor& tensor) const {
  Type type = Type::Tensor(tensor.dtype(), {tensor.dims().begin(), tensor.dims().end()});
  return "tensor(" + FormatType(type) + " = " + FormatContents(tensor, nullptr) + ")";
}

std::string Printer::Format(const Attribute& attribute, int indent) {
  const auto quoted = [](const std::string& s) { return Quote(s); };
  const auto integer = [](int64_t i) { return std::to_string(i); };
  return std::visit(
      Overloaded{[&](int64_t value) { return integer(value); },
                 [&](double value) { return text::FormatFloat(value); },
                 [&](const std::string& value) { return Quote(value); },
                 [&](const std::vector<int64_t>& values) {
                   return (values.empty() ? "ints[" : "[") + Join(values, integer) + "]";
                 },
                 [&](const std::vector<double>& values) {
                   return (values.empty() ? "floats[" : "[") + Join(values, text::FormatFloat) +
                          "]";
                 },
                 [&](const std::vector<std::string>& values) {
                   return (values.empty() ? "strings[" : "[") + Join(values, quoted) + "]";
                 },
                 [&](const Tensor& tensor) { return FormatTensor(tensor); },
                 [&](const GraphPtr& body) -> std::string {
                   if (body == nullptr) return "graph \"\" {}";
                   // The block is appended to what was printed so far, then taken off again.
                   const size_t before = text_.size();
                   PrintBlock(*body, indent, false);
                   const std::string block = text_.substr(before);
                   text_.resize(before);
                   return "graph " + Quote(body->name) + " " + block;
                 },
                 [&](const Type& type) { return "type(" + FormatType(type) + ")"; }},
      attribute);
}

void Printer::PrintAttributes(const Node& node, int indent) {
  if (node.attributes.empty()) return;
  const bool bodies =
      std::any_of(node.attributes.begin(), node.attributes.end(),
                  [](const auto& entry) { return std::holds_alternative<GraphPtr>(entry.second); });
  const std::string separator =
      bodies ? ",\n" + std::string(static_cast<size_t>(indent + 1) * 2, ' ') : ", ";
  text_ += bodies ? " {" + separator.substr(1) : " {";
  bool first = true;
  for (const auto& [name, attribute] : node.attributes) {
    if (!first) text_ += separator;
    first = false;
    text_ += Name(name) + " = ";
    text_ += Format(attribute, indent + 1);
  }
  text_ += bodies ? "\n" + std::string(static_cast<size_t>(indent) * 2, ' ') + "}" : "}";
}

void Printer::PrintNode(const Graph& graph, const Node& node, int indent) {
  const auto output = [&](ValueId id) {
    const bool valid = id >= 0 && static_cast<size_t>(id) < graph.values.size();
    return Ref(graph, id) + (valid ? Suffix(graph.value(id), false) : "");
  };
  text_ += std::string(static_cast<size_t>(indent) * 2, ' ');
  text_ += node.outputs.empty() ? "()" : Join(node.outputs, output);
  text_ += " = ";
  if (!node.domain.empty()) text_ += Name(node.domain) + "::";
  text_ += Name(node.op);
  if (node.version != 0) text_ += "@" + std::to_string(node.version);
  text_ += "(" + Join(node.inputs, [&](ValueId id) { return Ref(graph, id); }) + ")";
  PrintAttributes(node, indent);
  const auto named = std::find_if(node.outputs.begin(), node.outputs.end(),
                                  [](ValueId id) { return id != kNone; });
  const bool same = named != node.outputs.end() &&
                    static_cast<size_t>(*named) < graph.values.size() &&
                    graph.value(*named).name == node.name;
  if (!same) text_ += " as " + Quote(node.name);
  if (!node.origin.empty()) text_ += " from " + Quote(node.origin);
  text_ += "\n";
}

// Long expressions get a line of their own, those that some type of the graph uses.
void Printer::PrintSymbols(int indent) {
  const std::vector<bool> used = UsedSymbols(root_);
  for (SymbolId id = 0; id < table_.size(); ++id) {
    const bool spelled_out = table_.at(id).is_expression() &&
                             !(used[static_cast<size_t>(id)] && table_.IsAbbreviated(id));
    if (!spelled_out) Line(indent, SymbolText(table_, id));
  }
}

void Printer::PrintBlock(const Graph& graph, int indent, bool outermost) {
  text_ += "{\n";
  const int inner = indent + 1;
  for (const auto& [key, value] : graph.metadata)
    Line(inner, fmt::format("meta {} = {}", Quote(key), Quote(value)));
  if (outermost) PrintSymbols(inner);
  std::vector<bool> defined(graph.values.size(), false);
  for (ValueId id : graph.inputs) {
    const bool valid = id >= 0 && static_cast<size_t>(id) < graph.values.size();
    if (valid) defined[static_cast<size_t>(id)] = true;
    Line(inner, "input " + Ref(graph, id) + (valid ? Suffix(graph.value(id), outermost) : ""));
  }
  const std::vector<bool> used = [&] {
    std::vector<bool> result(graph.values.size(), false);
    const auto use = [&](ValueId id) {
      if (id >= 0 && static_cast<size_t>(id) < result.size())
        result[static_cast<size_t>(id)] = true;
    };
    for (const Node& node : graph.nodes) std::for_each(node.inputs.begin(), node.inputs.end(), use);
    std::for_each(graph.outputs.begin(), graph.outputs.end(), use);
    return result;
  }();
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    const std::string ref = Ref(graph, static_cast<ValueId>(i));
    if (value.constant != nullptr) {
      Line(inner, "const " + ref + Suffix(value, true) + " = " +
                      FormatContents(value.constant->tensor, value.constant.get()));
    } else if (used[i] && !defined[i] && value.producer == kNone) {
      Line(inner, "capture " + ref + Suffix(value, false));
    }
  }
  for (const Node& node : graph.nodes) PrintNode(graph, node, inner);
  if (!graph.outputs.empty()) {
    Line(inner, "output " + Join(graph.outputs, [&](ValueId id) { return Ref(graph, id); }));
  }
  text_ += std::string(static_cast<size_t>(indent) * 2, ' ') + "}";
}

}  // namespace

std::string SymbolText(const SymbolTable& table, SymbolId id) {
  const Symbol& symbol = table.at(id);
  if (symbol.is_expression()) return fmt::format("let ${} = ({})", id, table.Definition(id));
  const std::string name = table.ToString(Dim::OfSymbol(id));
  if (const auto* runtime = std::get_if<RuntimeSize>(&symbol.definition)) {
    const std::string upper = runtime->upper ? ", " + table.ToString(*runtime->upper) : "";
    return fmt::format("symbol {} = runtime({}{})", name, Quote(runtime->node), upper);
  }
  const auto& axis = std::get<InputAxis>(symbol.definition);
  const std::string line =
      fmt::format("symbol {} = input({}, {}) in {}..{}", name, axis.input, axis.axis, symbol.min,
                  symbol.max == kUnbounded ? "" : std::to_string(symbol.max));
  return symbol.multiple_of == 1 ? line : line + fmt::format(" multiple {}", symbol.multiple_of);
}

std::string PrintGraph(const Graph& graph, const PrintOptions& options) {
  return Printer(graph, options).Print();
}

bool IsTextModule(std::string_view head) {
  const size_t start = head.find_first_not_of(" \t\r\n");
  return start != std::string_view::npos && head.substr(start).starts_with("quench.ir");
}

}  // namespace quench
