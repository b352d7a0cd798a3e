#include "common/ir/verify.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "common/base/status.h"
#include "common/blobs/digest.h"

namespace quench {
namespace {

using Names = std::unordered_set<std::string>;

// One graph of the nest; `outer` are the names that a body at the imported stage may capture.
class GraphVerifier {
 public:
  GraphVerifier(const Graph& graph, const std::string& context,
                const std::vector<const Names*>& outer, int depth, StatusCollector& problems)
      : graph_(graph), context_(context), outer_(outer), depth_(depth), problems_(problems) {}

  void Verify();

 private:
  template <typename... Args>
  void Fail(fmt::format_string<Args...> format, Args&&... args) {
    problems_.Add(
        InvalidArgument("{}{}", context_, fmt::format(format, std::forward<Args>(args)...)));
  }
  template <typename... Args>
  void FailValue(size_t id, fmt::format_string<Args...> format, Args&&... args) {
    Fail("value `{}`: {}", graph_.values[id].name,
         fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void FailNode(const Node& node, fmt::format_string<Args...> format, Args&&... args) {
    Fail("node `{}`: {}", node.name, fmt::format(format, std::forward<Args>(args)...));
  }

  bool imported() const { return graph_.stage == Stage::kImported; }
  bool InRange(ValueId id) const {
    return id >= 0 && static_cast<size_t>(id) < graph_.values.size();
  }

  bool IdsInRange();
  void VerifyInterface();
  void VerifyDefinitions();
  void VerifyValue(size_t id);
  void VerifyConstant(size_t id);
  void VerifyNode(size_t index);
  void VerifyBody(const Node& node, const std::string& attribute, const GraphPtr& body);
  void VerifyGroup(const Node& node);
  // "" or what is wrong with the type.
  std::string TypeProblem(const Type& type, int depth) const;
  bool IsCapture(const std::string& name) const;

  const Graph& graph_;
  const std::string context_;
  const std::vector<const Names*> outer_;
  const int depth_;
  StatusCollector& problems_;
  Names names_;
  std::vector<bool> used_;
};

// Everything else indexes freely, so this comes first.
bool GraphVerifier::IdsInRange() {
  bool ok = true;
  const auto check = [&](ValueId id, bool may_be_omitted, const std::string& where) {
    if (InRange(id) || (may_be_omitted && id == kNone)) return;
    Fail("{} refers to value {} of {}", where, id, graph_.values.size());
    ok = false;
  };
  for (ValueId id : graph_.inputs) check(id, false, "an input of the graph");
  for (ValueId id : graph_.outputs) check(id, false, "an output of the graph");
  for (const Node& node : graph_.nodes) {
    for (ValueId id : node.inputs) check(id, true, "an input of node `" + node.name + "`");
    for (ValueId id : node.outputs) check(id, true, "an output of node `" + node.name + "`");
  }
  for (size_t id = 0; id < graph_.values.size(); ++id) {
    const NodeId producer = graph_.values[id].producer;
    if (producer == kNone || (producer >= 0 && static_cast<size_t>(producer) < graph_.nodes.size()))
      continue;
    FailValue(id, "its producer is node {} of {}", producer, graph_.nodes.size());
    ok = false;
  }
  return ok;
}

void GraphVerifier::VerifyInterface() {
  std::vector<bool> seen(graph_.values.size(), false);
  for (ValueId id : graph_.inputs) {
    const size_t i = static_cast<size_t>(id);
    if (seen[i]) FailValue(i, "it is listed twice as an input");
    seen[i] = true;
    if (graph_.values[i].producer != kNone) FailValue(i, "it is an input and the output of a node");
    if (graph_.values[i].constant != nullptr) FailValue(i, "it is an input and a constant");
    used_[i] = true;
  }
  for (ValueId id : graph_.outputs) used_[static_cast<size_t>(id)] = true;
}

void GraphVerifier::VerifyDefinitions() {
  std::vector<NodeId> definer(graph_.values.size(), kNone);
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (ValueId id : graph_.nodes[n].outputs) {
      if (id == kNone) continue;
      const size_t i = static_cast<size_t>(id);
      used_[i] = true;
      if (definer[i] != kNone) {
        FailValue(i, "it is an output of node `{}` and of node `{}`", graph_.node(definer[i]).name,
                  graph_.nodes[n].name);
      }
      definer[i] = static_cast<NodeId>(n);
      if (graph_.values[i].producer != static_cast<NodeId>(n)) {
        FailValue(i, "it is an output of node `{}`, which is not recorded as its producer",
                  graph_.nodes[n].name);
      }
    }
    for (ValueId id : graph_.nodes[n].inputs) {
      if (id != kNone) used_[static_cast<size_t>(id)] = true;
    }
  }
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const Value& value = graph_.values[i];
    if (value.producer != kNone && definer[i] == kNone) {
      FailValue(i, "node `{}` is recorded as its producer and does not have it as an output",
                graph_.node(value.producer).name);
    }
    if (value.producer != kNone && value.constant != nullptr) {
      FailValue(i, "it is a constant and an output of node `{}`", graph_.node(value.producer).name);
    }
  }
  std::vector<bool> defined(graph_.values.size(), false);
  for (ValueId id : graph_.inputs) defined[static_cast<size_t>(id)] = true;
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const Value& value = graph_.values[i];
    if (!used_[i] || defined[i] || value.producer != kNone || value.constant != nullptr) continue;
    if (IsCapture(value.name)) continue;
    FailValue(i, "it is used, and is neither an input, a constant nor an output of a node");
  }
}

bool GraphVerifier::IsCapture(const std::string& name) const {
  return imported() && std::any_of(outer_.begin(), outer_.end(),
                                   [&](const Names* names) { return names->contains(name); });
}

std::string GraphVerifier::TypeProblem(const Type& type, int depth) const {
  if (depth > kMaxBodyNesting) return "its type nests too deeply";
  for (Dim dim : type.dims) {
    if (dim.is_static() && dim.value() < 0)
      return fmt::format("a size of {}, sizes are not negative", dim.value());
    if (!dim.is_static() && dim.symbol() >= graph_.symbols->size()) {
      return fmt::format("a size is symbol {} of {}", dim.symbol(), graph_.symbols->size());
    }
  }
  if (type.kind == ValueKind::kTensor)
    return type.element.empty() ? "" : "a tensor type with an element type";
  if (type.element.size() != 1)
    return fmt::format("{} element types, it has one", type.element.size());
  if (!imported() && !type.element[0].known()) return "its element type is not known";
  return TypeProblem(type.element[0], depth + 1);
}

void GraphVerifier::VerifyConstant(size_t id) {
  const Value& value = graph_.values[id];
  const Tensor& tensor = value.constant->tensor;
  const std::vector<Dim> dims(tensor.dims().begin(), tensor.dims().end());
  if (value.type.kind != ValueKind::kTensor || value.type.dtype != tensor.dtype()) {
    FailValue(id, "its type has elements {}, its constant {}", DataTypeName(value.type.dtype),
              DataTypeName(tensor.dtype()));
  } else if (!value.type.ranked || value.type.dims != dims) {
    FailValue(id, "its type and its constant differ in shape");
  }
  const std::optional<int64_t> count = ElementCount(tensor.dims());
  const bool strings = tensor.dtype() == DataType::kString;
  const int64_t stored = strings ? static_cast<int64_t>(tensor.strings().size())
                                 : static_cast<int64_t>(tensor.bytes().size());
  const int64_t bits = DataTypeBits(tensor.dtype());
  if (!count || (bits > 0 && *count > (INT64_MAX - 7) / bits) ||
      stored != (strings ? *count : DataTypeBytes(tensor.dtype(), *count))) {
    FailValue(id, "its constant has a shape that does not fit its contents");
  }
  if (!value.constant->digest.empty() && !IsDigest(value.constant->digest)) {
    FailValue(id, "its digest is not 64 lower-case hex characters");
  }
}

void GraphVerifier::VerifyValue(size_t id) {
  const Value& value = graph_.values[id];
  if (value.name.empty()) Fail("value {}: it has no name", id);
  if (!value.name.empty() && !names_.insert(value.name).second)
    FailValue(id, "the name is taken by another value");
  if (const std::string problem = TypeProblem(value.type, 0); !problem.empty())
    FailValue(id, "{}", problem);
  if (value.elements) {
    for (Dim dim : *value.elements) {
      if (dim.is_static() || dim.symbol() < graph_.symbols->size()) continue;
      FailValue(id, "an element is symbol {} of {}", dim.symbol(), graph_.symbols->size());
    }
  }
  if (value.constant != nullptr) VerifyConstant(id);
  if (!imported() && used_[id] && !value.type.known()) FailValue(id, "its type is not known");
}

void GraphVerifier::VerifyGroup(const Node& node) {
  const GraphPtr body = node.Body("body");
  if (body == nullptr) {
    FailNode(node, "{} takes its meaning from an attribute `body`, which it lacks", node.op);
  } else if (body->inputs.size() != node.inputs.size() ||
             body->outputs.size() != node.outputs.size()) {
    FailNode(node, "it has {} inputs and {} outputs, its body {} and {}", node.inputs.size(),
             node.outputs.size(), body->inputs.size(), body->outputs.size());
  }
}

void GraphVerifier::VerifyNode(size_t index) {
  const Node& node = graph_.nodes[index];
  if (node.op.empty()) FailNode(node, "it has no operator");
  for (ValueId id : node.inputs) {
    if (id == kNone || graph_.value(id).producer < static_cast<NodeId>(index)) continue;
    FailNode(node, "its input `{}` comes from node `{}`, which is not before it",
             graph_.value(id).name, graph_.node(graph_.value(id).producer).name);
  }
  if (!imported() && (!node.domain.empty() || node.version != 0)) {
    FailNode(node, "domain `{}` and version {}, only imported nodes have those", node.domain,
             node.version);
  }
  if (imported() && node.IsGroup()) FailNode(node, "an imported graph has no {}", node.op);
  if (!imported() && node.IsGroup()) VerifyGroup(node);
  for (const auto& [name, attribute] : node.attributes) {
    if (name.empty()) FailNode(node, "an attribute has no name");
    if (const Type* type = std::get_if<Type>(&attribute)) {
      const std::string problem = TypeProblem(*type, 0);
      if (!problem.empty()) FailNode(node, "attribute `{}`: {}", name, problem);
    }
    if (const GraphPtr* body = std::get_if<GraphPtr>(&attribute)) VerifyBody(node, name, *body);
  }
}

void GraphVerifier::VerifyBody(const Node& node, const std::string& attribute,
                               const GraphPtr& body) {
  if (body == nullptr) return FailNode(node, "attribute `{}` has no graph", attribute);
  if (depth_ == kMaxBodyNesting)
    return FailNode(node, "bodies nest deeper than {}", kMaxBodyNesting);
  if (body->symbols != graph_.symbols) {
    return FailNode(node, "attribute `{}`: the body has a symbol table of its own", attribute);
  }
  if (body->stage != graph_.stage) {
    return FailNode(node, "attribute `{}`: the body is {}, the graph {}", attribute,
                    StageName(body->stage), StageName(graph_.stage));
  }
  std::vector<const Names*> outer = outer_;
  outer.push_back(&names_);
  const std::string context = fmt::format("{}node `{}`, {}: ", context_, node.name, attribute);
  GraphVerifier(*body, context, outer, depth_ + 1, problems_).Verify();
}

void GraphVerifier::Verify() {
  if (!IdsInRange()) return;
  used_.assign(graph_.values.size(), false);
  VerifyInterface();
  VerifyDefinitions();
  for (size_t i = 0; i < graph_.values.size(); ++i) VerifyValue(i);
  Names node_names;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const std::string& name = graph_.nodes[i].name;
    if (name.empty()) Fail("node {} ({}): it has no name", i, graph_.nodes[i].op);
    if (!name.empty() && !node_names.insert(name).second)
      Fail("node `{}`: the name is taken by another node", name);
    VerifyNode(i);
  }
}

void VerifyInputSymbols(const Graph& graph, StatusCollector& problems) {
  for (SymbolId id = 0; id < graph.symbols->size(); ++id) {
    const Symbol& symbol = graph.symbols->at(id);
    const InputAxis* axis = std::get_if<InputAxis>(&symbol.definition);
    if (axis == nullptr) continue;
    if (axis->input < 0 || static_cast<size_t>(axis->input) >= graph.inputs.size()) {
      problems.Add(InvalidArgument("symbol `{}`: it is a size of input {} of {}", symbol.name,
                                   axis->input, graph.inputs.size()));
      continue;
    }
    const Value& input = graph.value(graph.inputs[static_cast<size_t>(axis->input)]);
    if (axis->axis < 0 || (input.type.ranked && axis->axis >= input.type.rank())) {
      problems.Add(InvalidArgument("symbol `{}`: it is axis {} of input `{}` of rank {}",
                                   symbol.name, axis->axis, input.name, input.type.rank()));
    }
  }
}

void CountNames(const Graph& graph, std::map<std::string, int>& counts) {
  for (const Node& node : graph.nodes) {
    ++counts[node.name];
    for (const auto& [name, attribute] : node.attributes) {
      if (const GraphPtr* body = std::get_if<GraphPtr>(&attribute)) CountNames(**body, counts);
    }
  }
}

// A size that is known only while running belongs to a node by that node's name. Were two nodes to have it, in bodies
// that know nothing of each other, both would write one size.
void VerifyRuntimeSymbols(const Graph& graph, StatusCollector& problems) {
  std::map<std::string, int> counts;
  CountNames(graph, counts);
  std::set<std::string> reported;
  for (SymbolId id = 0; id < graph.symbols->size(); ++id) {
    const Symbol& symbol = graph.symbols->at(id);
    const RuntimeSize* size = std::get_if<RuntimeSize>(&symbol.definition);
    if (size == nullptr || counts[size->node] < 2 || !reported.insert(size->node).second) continue;
    problems.Add(
        InvalidArgument("symbol `{}`: node `{}` computes it, and {} nodes of the graph and its "
                        "bodies have that name; names of such "
                        "nodes must be unique",
                        symbol.name, size->node, counts[size->node]));
  }
}

}  // namespace

absl::Status VerifyGraph(const Graph& graph) {
  StatusCollector problems;
  if (graph.symbols == nullptr) return InvalidArgument("the graph has no symbol table");
  GraphVerifier(graph, "", {}, 0, problems).Verify();
  if (problems.ok() && graph.stage != Stage::kImported) {
    VerifyInputSymbols(graph, problems);
    VerifyRuntimeSymbols(graph, problems);
  }
  return problems.Finish();
}

}  // namespace quench
