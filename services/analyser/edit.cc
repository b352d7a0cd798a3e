#include "services/analyser/edit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "common/base/near_names.h"
#include "common/base/status.h"
#include "common/ir/metadata.h"
#include "common/ir/text_lex.h"
#include "common/ir/text_parts.h"
#include "common/ir/verify.h"
#include "common/ops/fresh_symbols.h"

namespace quench::analyser {
namespace {

using Names = std::vector<std::string>;

std::string Quoted(const Names& names) {
  Names quoted;
  for (const std::string& name : names) quoted.push_back(fmt::format("`{}`", name));
  return fmt::format("{}", fmt::join(quoted, ", "));
}

std::string Count(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

template <typename T>
bool Contains(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// A node that needs a result of its own, if there is one.
std::optional<NodeId> NodeOfCycle(const Graph& graph) {
  std::vector<size_t> waits(graph.nodes.size(), 0);
  std::vector<std::vector<NodeId>> readers(graph.nodes.size());
  std::vector<NodeId> ready;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId input : graph.nodes[i].inputs) {
      if (input == kNone || graph.value(input).producer == kNone) continue;
      readers[static_cast<size_t>(graph.value(input).producer)].push_back(static_cast<NodeId>(i));
      ++waits[i];
    }
    if (waits[i] == 0) ready.push_back(static_cast<NodeId>(i));
  }
  while (!ready.empty()) {
    const NodeId done = ready.back();
    ready.pop_back();
    for (const NodeId reader : readers[static_cast<size_t>(done)]) {
      if (--waits[static_cast<size_t>(reader)] == 0) ready.push_back(reader);
    }
  }
  const auto left = std::ranges::find_if(waits, [](size_t count) { return count > 0; });
  if (left == waits.end()) return std::nullopt;
  return static_cast<NodeId>(left - waits.begin());
}

// Changes one graph; those of bodies are editors of their own.
class Editor {
 public:
  Editor(Graph graph, const EditScript& script, const EditTensors& tensors, bool body)
      : graph_(std::move(graph)), script_(script), tensors_(tensors), body_(body) {}

  void Apply(const std::vector<EditStatement>& statements, EditReport& report,
             StatusCollector& problems) {
    for (const EditStatement& statement : statements) {
      if (statement.kind == EditKind::kIn) {
        problems.Add(In(statement, report, problems));
        continue;
      }
      Graph before = graph_;
      absl::StatusOr<std::string> change = Change(statement);
      if (change.ok()) {
        if (const std::optional<NodeId> node = NodeOfCycle(graph_)) {
          change = Problem(statement, "node `{}` would need a result of its own",
                           graph_.node(*node).name);
        }
      }
      if (change.ok()) {
        report.changes.push_back(*std::move(change));
      } else {
        graph_ = std::move(before);
        problems.Add(change.status());
      }
    }
  }

  Graph Take() && { return std::move(graph_); }

 private:
  template <typename... Args>
  absl::Status Problem(const EditStatement& at, fmt::format_string<Args...> format,
                       Args&&... args) const {
    return ErrorIn(script_, text::ErrorAt(script_.text, at.begin,
                                          fmt::format(format, std::forward<Args>(args)...)));
  }

  absl::Status ReadBlock(const EditStatement& at, const std::set<NodeId>& replaced) {
    const absl::Status status = ParseBlockInto(script_.text, at.part, replaced, graph_);
    return status.ok() ? status : ErrorIn(script_, status);
  }

  // A part of the text that has been read, or why it could not be.
  template <typename T>
  absl::StatusOr<T> Read(absl::StatusOr<T> part) const {
    if (part.ok()) return part;
    return ErrorIn(script_, part.status());
  }

  absl::StatusOr<std::string> Change(const EditStatement& statement) {
    switch (statement.kind) {
      case EditKind::kReplace:
        return Replace(statement);
      case EditKind::kInsert:
        return Insert(statement);
      case EditKind::kAdd:
        return Add(statement);
      case EditKind::kRemove:
        return Remove(statement);
      case EditKind::kRenameValue:
        return RenameValue(statement);
      case EditKind::kRenameNode:
        return RenameNode(statement);
      case EditKind::kSet:
        return Set(statement);
      case EditKind::kUnset:
        return Unset(statement);
      case EditKind::kConstant:
        return SetConstant(statement);
      case EditKind::kInput:
        return Input(statement);
      case EditKind::kOutputs:
        return Outputs(statement);
      case EditKind::kIn:
        break;
    }
    return Internal("statement of no kind");
  }

  // By its name, or else by that in the source model, if it is one node's.
  absl::StatusOr<NodeId> FindNode(const EditStatement& at, const std::string& name) const {
    std::vector<NodeId> origins;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].name == name) return static_cast<NodeId>(i);
      if (graph_.nodes[i].origin == name) origins.push_back(static_cast<NodeId>(i));
    }
    if (origins.size() == 1) return origins[0];
    if (origins.empty()) {
      Names names;
      for (const Node& node : graph_.nodes) names.push_back(node.name);
      return Problem(at, "no node is named `{}` (`quench nodes` lists them){}", name,
                     DidYouMean(name, names));
    }
    Names names;
    for (const NodeId id : origins) names.push_back(graph_.node(id).name);
    return Problem(at, "{} nodes come from `{}`: name one of {}", origins.size(), name,
                   Quoted(names));
  }

  absl::StatusOr<std::set<NodeId>> FindNodes(const EditStatement& at) const {
    std::set<NodeId> ids;
    StatusCollector problems;
    for (const std::string& name : at.nodes) {
      const absl::StatusOr<NodeId> id = FindNode(at, name);
      problems.Add(id.status());
      if (id.ok() && !ids.insert(*id).second)
        problems.Add(Problem(at, "node `{}` is named twice", name));
    }
    if (!problems.ok()) return problems.Finish();
    return ids;
  }

  absl::StatusOr<ValueId> FindValue(const EditStatement& at, const std::string& name) const {
    if (const std::optional<ValueId> id = graph_.FindValue(name)) return *id;
    return Problem(at, "no value is named `{}` (`quench ir` shows them)", name);
  }

  bool IsInput(ValueId id) const { return Contains(graph_.inputs, id); }
  bool IsMade(ValueId id) const { return graph_.value(id).producer != kNone; }

  void Redirect(ValueId from, ValueId to) {
    for (Node& node : graph_.nodes) std::ranges::replace(node.inputs, from, to);
    std::ranges::replace(graph_.outputs, from, to);
  }

  // `name` is free afterwards.
  void Retire(ValueId id) {
    const std::string name = graph_.value(id).name;
    std::string other = name + ".before";
    while (graph_.FindValue(other)) other += "_";
    graph_.value(id).name = other;
  }

  void Erase(const std::set<NodeId>& ids) {
    std::vector<Node> kept;
    for (Value& value : graph_.values) value.producer = kNone;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (ids.contains(static_cast<NodeId>(i))) continue;
      for (const ValueId output : graph_.nodes[i].outputs) {
        if (output != kNone) graph_.value(output).producer = static_cast<NodeId>(kept.size());
      }
      kept.push_back(std::move(graph_.nodes[i]));
    }
    graph_.nodes = std::move(kept);
  }

  // Results of these nodes that others need.
  std::vector<ValueId> NeededResults(const std::set<NodeId>& ids) const {
    std::set<ValueId> read(graph_.outputs.begin(), graph_.outputs.end());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (ids.contains(static_cast<NodeId>(i))) continue;
      read.insert(graph_.nodes[i].inputs.begin(), graph_.nodes[i].inputs.end());
    }
    std::vector<ValueId> needed;
    for (const NodeId id : ids) {
      for (const ValueId output : graph_.node(id).outputs) {
        if (output != kNone && read.contains(output)) needed.push_back(output);
      }
    }
    return needed;
  }

  // The first result of the last of the nodes from `first` on, or kNone.
  ValueId LastResult(size_t first) const {
    if (graph_.nodes.size() == first) return kNone;
    const std::vector<ValueId>& results = graph_.nodes.back().outputs;
    return results.empty() ? kNone : results[0];
  }

  absl::StatusOr<std::string> Replace(const EditStatement& at) {
    QUENCH_ASSIGN_OR_RETURN(const std::set<NodeId> replaced, FindNodes(at));
    const std::vector<ValueId> needed = NeededResults(replaced);
    const size_t first_node = graph_.nodes.size(), first_value = graph_.values.size();
    QUENCH_RETURN_IF_ERROR(ReadBlock(at, replaced));
    const auto find = [&](const std::string& name) {
      for (size_t i = first_value; i < graph_.values.size(); ++i) {
        if (graph_.values[i].name == name) return static_cast<ValueId>(i);
      }
      return kNone;
    };
    Names missing;
    for (const ValueId old : needed) {
      const std::string name = graph_.value(old).name;
      ValueId now = find(name);
      if (now == kNone && needed.size() == 1) now = LastResult(first_node);
      if (now == kNone) {
        missing.push_back(name);
        continue;
      }
      Redirect(old, now);
      Retire(old);
      graph_.value(now).name = name;
    }
    if (!missing.empty())
      return Problem(at, "others need {}, which the block does not define", Quoted(missing));
    const size_t added = graph_.nodes.size() - first_node;
    Erase(replaced);
    return fmt::format("{} replaced by {}", Quoted(at.nodes), Count(added, "node"));
  }

  absl::StatusOr<std::string> Insert(const EditStatement& at) {
    QUENCH_ASSIGN_OR_RETURN(const ValueId value, FindValue(at, at.value));
    QUENCH_ASSIGN_OR_RETURN(std::set<NodeId> readers, FindNodes(at));
    StatusCollector problems;
    for (const NodeId id : readers) {
      if (!Contains(graph_.node(id).inputs, value))
        problems.Add(Problem(at, "node `{}` does not read `{}`", graph_.node(id).name, at.value));
    }
    QUENCH_RETURN_IF_ERROR(problems.Finish());
    const size_t first = graph_.nodes.size();
    QUENCH_RETURN_IF_ERROR(ReadBlock(at, {}));
    const ValueId result = LastResult(first);
    if (result == kNone)
      return Problem(at, "the block has no last node with a result to read in the place of `{}`",
                     at.value);
    for (size_t i = 0; i < first; ++i) {
      if (!at.nodes.empty() && !readers.contains(static_cast<NodeId>(i))) continue;
      std::ranges::replace(graph_.nodes[i].inputs, value, result);
    }
    if (at.nodes.empty() && graph_.IsOutput(value)) {
      std::ranges::replace(graph_.outputs, value, result);
      if (IsMade(value)) std::swap(graph_.value(value).name, graph_.value(result).name);
    }
    return fmt::format("{} inserted between `{}` and {}",
                       Count(graph_.nodes.size() - first, "node"), at.value,
                       at.nodes.empty() ? "its readers" : Quoted(at.nodes));
  }

  absl::StatusOr<std::string> Add(const EditStatement& at) {
    const size_t first = graph_.nodes.size();
    QUENCH_RETURN_IF_ERROR(ReadBlock(at, {}));
    return fmt::format("{} added", Count(graph_.nodes.size() - first, "node"));
  }

  absl::StatusOr<std::string> Remove(const EditStatement& at) {
    QUENCH_ASSIGN_OR_RETURN(const NodeId id, FindNode(at, at.nodes[0]));
    const std::string name = graph_.node(id).name;
    ValueId to = kNone;
    if (!at.to.empty()) {
      QUENCH_ASSIGN_OR_RETURN(to, FindValue(at, at.to));
    } else {
      for (const ValueId input : graph_.node(id).inputs) {
        if (to == kNone) to = input;
      }
    }
    const std::vector<ValueId> needed = NeededResults({id});
    if (needed.empty()) {
      Erase({id});
      return fmt::format("`{}` removed, nothing reads it", name);
    }
    if (needed.size() > 1) {
      Names names;
      for (const ValueId result : needed) names.push_back(graph_.value(result).name);
      return Problem(at, "others need {} results of node `{}`, {}: replace it by a block",
                     needed.size(), name, Quoted(names));
    }
    if (to == kNone)
      return Problem(
          at, "node `{}` has no input that could take its place: `remove \"{}\" with %value`", name,
          name);
    const ValueId old = needed[0];
    const std::string instead = graph_.value(to).name;
    if (graph_.IsOutput(old) && (!IsMade(to) || graph_.IsOutput(to))) {
      Node& node = graph_.node(id);  // an output is the result of a node, and of one name
      node.op = "Identity";
      node.attributes.clear();
      node.inputs = {to};
      node.outputs = {old};
      return fmt::format("`{}` hands on `{}`", name, instead);
    }
    if (graph_.IsOutput(old)) std::swap(graph_.value(old).name, graph_.value(to).name);
    Redirect(old, to);
    Erase({id});
    return fmt::format("`{}` removed, its readers read `{}`", name, instead);
  }

  absl::StatusOr<std::string> RenameValue(const EditStatement& at) {
    QUENCH_ASSIGN_OR_RETURN(const ValueId id, FindValue(at, at.value));
    if (graph_.FindValue(at.to)) return Problem(at, "there is a value `{}` already", at.to);
    graph_.value(id).name = at.to;
    if (IsInput(id)) {
      for (const char* key : {kStateKey, kStateInitialKey, kUnfrozenKey}) {
        auto entry = graph_.metadata.extract(key + at.value);
        if (entry.empty()) continue;
        entry.key() = key + at.to;
        graph_.metadata.insert(std::move(entry));
      }
    }
    for (auto& [key, output] : graph_.metadata) {
      if (key.starts_with(kStateKey) && output == at.value && graph_.IsOutput(id)) output = at.to;
    }
    return fmt::format("value `{}` is `{}`", at.value, at.to);
  }

  absl::StatusOr<std::string> RenameNode(const EditStatement& at) {
    QUENCH_ASSIGN_OR_RETURN(const NodeId id, FindNode(at, at.nodes[0]));
    for (const Node& node : graph_.nodes) {
      if (node.name == at.to) return Problem(at, "there is a node `{}` already", at.to);
    }
    const std::string before = std::exchange(graph_.node(id).name, at.to);
    return fmt::format("node `{}` is `{}`", before, at.to);
  }

  absl::StatusOr<std::string> Set(const EditStatement& at) {
    QUENCH_ASSIGN_OR_RETURN(const NodeId id, FindNode(at, at.nodes[0]));
    QUENCH_ASSIGN_OR_RETURN(const auto attributes,
                            Read(ParseAttributesAt(script_.text, at.part, graph_)));
    Names names;
    for (const auto& [name, attribute] : attributes) {
      graph_.node(id).attributes[name] = attribute;
      names.push_back(name);
    }
    return fmt::format("`{}`: {} set", graph_.node(id).name, Quoted(names));
  }

  absl::StatusOr<std::string> Unset(const EditStatement& at) {
    QUENCH_ASSIGN_OR_RETURN(const NodeId id, FindNode(at, at.nodes[0]));
    for (const std::string& name : at.names) {
      if (graph_.node(id).attributes.erase(name) == 0)
        return Problem(at, "node `{}` has no attribute `{}`", graph_.node(id).name, name);
    }
    return fmt::format("`{}`: {} unset", graph_.node(id).name, Quoted(at.names));
  }

  absl::StatusOr<Tensor> TensorOf(const EditStatement& at) const {
    if (at.file.empty()) return Read(ParseTensorAt(script_.text, at.part, graph_));
    absl::StatusOr<Tensor> tensor = tensors_(at.file, at.array);
    if (tensor.ok()) return tensor;
    return Problem(at, "{}", MessageOf(tensor.status()));
  }

  // Where the interface of a body is the node's, or a value is an output.
  absl::Status CheckFree(const EditStatement& at, ValueId id, const char* becomes) const {
    const std::string& name = graph_.value(id).name;
    if (graph_.IsOutput(id))
      return Problem(at, "`{}` is an output, and cannot become {}", name, becomes);
    if (body_ && IsInput(id))
      return Problem(at, "`{}` is what the node gives to the body, and cannot become {}", name,
                     becomes);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> SetConstant(const EditStatement& at) {
    QUENCH_ASSIGN_OR_RETURN(Tensor tensor, TensorOf(at));
    const std::optional<ValueId> existing = graph_.FindValue(at.value);
    const std::string shape =
        fmt::format("{}[{}]", DataTypeName(tensor.dtype()), fmt::join(tensor.dims(), ", "));
    if (!existing) {
      graph_.AddConstant(at.value, std::move(tensor));
      return fmt::format("constant `{}` {} added", at.value, shape);
    }
    QUENCH_RETURN_IF_ERROR(CheckFree(at, *existing, "a constant"));
    Retire(*existing);
    const ValueId id = graph_.AddConstant(at.value, std::move(tensor));
    Redirect(*existing, id);
    std::erase(graph_.inputs, *existing);
    return fmt::format("`{}` is a constant {}", at.value, shape);
  }

  absl::StatusOr<std::string> Input(const EditStatement& at) {
    if (body_) return Problem(at, "the inputs of a body are those of its node");
    QUENCH_ASSIGN_OR_RETURN(const ValueId id, FindValue(at, at.value));
    Type type = graph_.value(id).type;
    if (at.part != 0) {
      QUENCH_ASSIGN_OR_RETURN(type, Read(ParseTypeAt(script_.text, at.part, graph_)));
    }
    if (type.kind != ValueKind::kTensor || !type.ranked || !type.known())
      return Problem(at, "an input is a tensor of a known rank, like `: f32[1, 3]`");
    if (IsInput(id)) {
      graph_.value(id).type = std::move(type);
      return fmt::format("input `{}` has another type", at.value);
    }
    QUENCH_RETURN_IF_ERROR(CheckFree(at, id, "an input"));
    Retire(id);
    Redirect(id, graph_.AddInput(at.value, std::move(type)));
    return fmt::format("`{}` is an input", at.value);
  }

  absl::StatusOr<std::string> Outputs(const EditStatement& at) {
    if (body_) return Problem(at, "the outputs of a body are those of its node");
    std::vector<ValueId> outputs;
    for (const std::string& name : at.names) {
      QUENCH_ASSIGN_OR_RETURN(const ValueId id, FindValue(at, name));
      if (!IsMade(id)) return Problem(at, "`{}` is not the result of a node", name);
      if (Contains(outputs, id)) return Problem(at, "`{}` is named twice", name);
      outputs.push_back(id);
    }
    graph_.outputs = std::move(outputs);
    return fmt::format("the outputs are {}", Quoted(at.names));
  }

  absl::Status In(const EditStatement& at, EditReport& report, StatusCollector& problems) {
    QUENCH_ASSIGN_OR_RETURN(const NodeId id, FindNode(at, at.nodes[0]));
    const GraphPtr body = graph_.node(id).Body(at.to);
    if (body == nullptr) {
      return Problem(at, "node `{}` ({}) has no body `{}`", graph_.node(id).name,
                     graph_.node(id).op, at.to);
    }
    Editor inner(*body, script_, tensors_, /*body=*/true);
    inner.Apply(at.body, report, problems);
    Graph changed = std::move(inner).Take();
    changed.Compact();
    graph_.node(id).attributes[at.to] = std::make_shared<const Graph>(std::move(changed));
    return absl::OkStatus();
  }

  Graph graph_;
  const EditScript& script_;
  const EditTensors& tensors_;
  const bool body_;
};

std::set<std::string> ReadInputs(const Graph& graph) {
  std::set<std::string> names;
  const std::vector<int> uses = graph.UseCounts();
  for (const ValueId id : graph.inputs) {
    if (uses[static_cast<size_t>(id)] > 0) names.insert(graph.value(id).name);
  }
  return names;
}

// Nodes that nothing needs, and inputs that are read no more, if they are among `inputs`.
void DropUnneeded(const std::set<std::string>& inputs, Graph& graph, EditReport& report) {
  Names nodes;
  for (const Node& node : graph.nodes) nodes.push_back(node.name);
  graph.Compact();
  std::set<std::string> kept;
  for (const Node& node : graph.nodes) kept.insert(node.name);
  for (const std::string& node : nodes) {
    if (!kept.contains(node)) report.dropped.push_back(fmt::format("node `{}`", node));
  }
  const std::vector<int> uses = graph.UseCounts();
  std::erase_if(graph.inputs, [&](ValueId id) {
    const std::string& name = graph.value(id).name;
    if (uses[static_cast<size_t>(id)] > 0 || !inputs.contains(name)) return false;
    report.dropped.push_back(fmt::format("input `{}`", name));
    return true;
  });
  graph.Compact();
}

bool Cuts(const EditScript& script) {
  return std::ranges::any_of(script.statements, [](const EditStatement& statement) {
    return statement.kind == EditKind::kInput || statement.kind == EditKind::kOutputs;
  });
}

}  // namespace

absl::StatusOr<Edited> EditGraph(const Graph& graph, const EditScript& script,
                                 const EditTensors& tensors, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(context.Check());
  if (graph.stage == Stage::kImported)
    return InvalidArgument("the module is at stage `imported`, `canonical` ones are edited");
  Edited edited;
  StatusCollector problems;
  Editor editor(graph, script, tensors, /*body=*/false);
  editor.Apply(script.statements, edited.report, problems);
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  edited.graph = std::move(editor).Take();
  // Only a cut takes the last reader of an input away on purpose.
  DropUnneeded(Cuts(script) ? ReadInputs(graph) : std::set<std::string>(), edited.graph,
               edited.report);
  QUENCH_RETURN_IF_ERROR(context.Check());
  QUENCH_ASSIGN_OR_RETURN(edited.graph, ops::WithFreshSymbols(std::move(edited.graph)));
  QUENCH_RETURN_IF_ERROR(VerifyGraph(edited.graph));
  return edited;
}

std::string ToTable(const EditReport& report) {
  std::string text;
  for (const std::string& change : report.changes) text += change + "\n";
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < report.dropped.size() && i < kShown; ++i)
    text += fmt::format("dropped: {}\n", report.dropped[i]);
  if (report.dropped.size() > kShown)
    text += fmt::format("dropped: ... and {} more\n", report.dropped.size() - kShown);
  return text;
}

std::string ToJson(const EditReport& report) {
  const nlohmann::json json = {{"changes", report.changes}, {"dropped", report.dropped}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace quench::analyser
