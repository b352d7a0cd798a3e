#include "services/importer/tensorflow/entry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/tensorflow/convert.h"

namespace quench::importer {
namespace {

bool GivesNothing(const std::string& op) {
  return op == "NoOp" || op == "Assert" || op == "Const" || op == "Placeholder";
}

// The nodes that compute something from a placeholder.
std::vector<bool> DependOnPlaceholders(const TfBody& body) {
  std::vector<std::vector<size_t>> readers(body.nodes.size());
  std::vector<size_t> pending;
  std::vector<bool> depends(body.nodes.size(), false);
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    for (const TfRef& ref : body.inputs[i]) readers[static_cast<size_t>(ref.node)].push_back(i);
    const std::string& op = body.nodes[i]->op();
    if (op == "Placeholder" || op == "PlaceholderV2") pending.push_back(i);
  }
  while (!pending.empty()) {
    const size_t node = pending.back();
    pending.pop_back();
    if (depends[node]) continue;
    depends[node] = true;
    pending.insert(pending.end(), readers[node].begin(), readers[node].end());
  }
  return depends;
}

// The last node that gives something and that nobody reads; what saves and restores the variables of a
// training graph depends on no input, so one that does comes first.
std::vector<TfNamed> DefaultOutputs(const TfBody& body) {
  std::vector<bool> read(body.nodes.size(), false);
  for (const auto& inputs : body.inputs) {
    for (const TfRef& ref : inputs) read[static_cast<size_t>(ref.node)] = true;
  }
  const std::vector<bool> depends = DependOnPlaceholders(body);
  std::optional<size_t> last;
  for (size_t i = body.nodes.size(); i-- > 0 && !(last && depends[*last]);) {
    const std::string& op = body.nodes[i]->op();
    if (read[i] || GivesNothing(op) || (body.outputs[i] == 0 && FindTensorflowRow(op))) continue;
    if (!last || depends[i]) last = i;
  }
  std::vector<TfNamed> outputs;
  for (int k = 0; last && k < std::max(body.outputs[*last], 1); ++k) {
    const std::string& name = body.nodes[*last]->name();
    outputs.push_back(
        {k == 0 ? name : fmt::format("{}:{}", name, k), TfRef{static_cast<int>(*last), k}});
  }
  return outputs;
}

absl::StatusOr<TfRef> CheckedTensor(const TfBody& body, const std::string& text) {
  QUENCH_ASSIGN_OR_RETURN(const TfRef ref, FindTensor(body, text));
  const int outputs = body.outputs[static_cast<size_t>(ref.node)];
  if (ref.output >= 0 && ref.output < outputs) return ref;
  return InvalidArgument("`{}`: node `{}` has {} outputs", Printable(text),
                         Printable(body.node(ref.node).name()), outputs);
}

absl::Status ReadSignature(const TfProgram& program, const ImportOptions& options, TfEntry& entry) {
  const auto& signatures = program.file().signatures;
  std::string name = options.signature;
  std::vector<std::string> known;
  for (const auto& [key, signature] : signatures) {
    if (!key.starts_with("__saved_model")) known.push_back(Printable(key));
  }
  if (name.empty() && signatures.contains("serving_default")) name = "serving_default";
  if (name.empty() && known.size() == 1) name = known[0];
  const auto found = signatures.find(name);
  if (found == signatures.end()) {
    if (name.empty() && !options.outputs.empty()) return absl::OkStatus();
    const std::string list =
        known.empty() ? "it has none" : fmt::format("it has `{}`", fmt::join(known, "`, `"));
    return name.empty() ? InvalidArgument(
                              "the model has no signature `serving_default`, {}: "
                              "name one, or outputs",
                              list)
                        : InvalidArgument("the model has no signature `{}`, {}", name, list);
  }
  StatusCollector problems;
  for (const auto* list : {&found->second.inputs(), &found->second.outputs()}) {
    const std::map<std::string, tf::TensorInfo> sorted(list->begin(), list->end());
    for (const auto& [key, info] : sorted) {
      absl::StatusOr<TfRef> ref = CheckedTensor(program.main(), info.name());
      problems.Add(Annotate(ref.status(), fmt::format("signature `{}`", Printable(name))));
      if (!ref.ok()) continue;
      (list == &found->second.inputs() ? entry.inputs : entry.outputs)
          .push_back({Printable(key), *ref});
    }
  }
  return problems.Finish();
}

// Nodes that the outputs need, functions that those run.
class Needed {
 public:
  Needed(TfProgram& program, TfEntry& entry) : program_(program), entry_(entry) {
    for (const TfNamed& input : entry.inputs) cut_.insert(input.ref);
  }

  absl::Status Find() {
    for (const TfNamed& output : entry_.outputs) Push(program_.main(), output.ref);
    while (!pending_.empty()) {
      const auto [body, node] = pending_.back();
      pending_.pop_back();
      entry_.needed[body].push_back(node);
      if (++count_ > kMaxTensorflowNodes)
        return absl::ResourceExhaustedError(
            fmt::format("the model has more than {} nodes", kMaxTensorflowNodes));
      for (const TfRef& ref : body->inputs_of(node)) Push(*body, ref);
      QUENCH_RETURN_IF_ERROR(PushFunctions(body->node(node)));
    }
    for (auto& [body, nodes] : entry_.needed) std::sort(nodes.begin(), nodes.end());
    return absl::OkStatus();
  }

 private:
  void Push(const TfBody& body, const TfRef& ref) {
    if (ref.node < 0 || (&body == &program_.main() && cut_.contains(ref))) return;
    if (seen_.insert({&body, ref.node}).second) pending_.emplace_back(&body, ref.node);
  }

  absl::Status PushFunctions(const tf::NodeDef& node) {
    std::vector<const tf::FunctionDef*> called = {CalledBy(node, program_.library())};
    for (const char* attribute : {"then_branch", "else_branch", "cond", "body"}) {
      const tf::AttrValue* value = FindAttr(node, attribute);
      const auto found = value == nullptr ? program_.library().end()
                                          : program_.library().find(value->func().name());
      called.push_back(found == program_.library().end() ? nullptr : found->second);
    }
    for (const tf::FunctionDef* function : called) {
      if (function == nullptr) continue;
      QUENCH_ASSIGN_OR_RETURN(const TfBody* body, program_.BodyOf(*function));
      for (const TfRef& ref : body->results) Push(*body, ref);
    }
    return absl::OkStatus();
  }

  TfProgram& program_;
  TfEntry& entry_;
  std::set<TfRef> cut_;
  std::set<std::pair<const TfBody*, int>> seen_;
  std::vector<std::pair<const TfBody*, int>> pending_;
  size_t count_ = 0;
};

}  // namespace

TfProgram::TfProgram(const TensorflowFile& file) : file_(file) {}

absl::Status TfProgram::Read() {
  for (const tf::FunctionDef& function : file_.graph.library().function())
    library_.emplace(function.signature().name(), &function);
  QUENCH_ASSIGN_OR_RETURN(main_, importer::BodyOf(file_.graph, library_));
  return absl::OkStatus();
}

absl::StatusOr<const TfBody*> TfProgram::BodyOf(const tf::FunctionDef& function) {
  std::unique_ptr<TfBody>& body = bodies_[&function];
  if (body == nullptr) {
    QUENCH_ASSIGN_OR_RETURN(TfBody read, importer::BodyOf(function, library_));
    body = std::make_unique<TfBody>(std::move(read));
  }
  return body.get();
}

absl::StatusOr<const TfBody*> TfProgram::BodyIn(const tf::NodeDef& node,
                                                const std::string& attribute) {
  const tf::AttrValue* value = FindAttr(node, attribute);
  const std::string name = value == nullptr ? "" : value->func().name();
  const auto found = library_.find(name);
  if (found != library_.end()) return BodyOf(*found->second);
  return InvalidArgument("node `{}` ({}): its `{}` is the function `{}`, which the model lacks",
                         Printable(node.name()), node.op(), attribute, Printable(name));
}

bool DrawsDropout(const TfBody& body, int node) {
  std::vector<std::vector<int>> readers(body.nodes.size());
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    for (const TfRef& ref : body.inputs[i]) {
      if (ref.node >= 0) readers[static_cast<size_t>(ref.node)].push_back(static_cast<int>(i));
    }
  }
  std::vector<int> pending = {node};
  std::set<int> seen;
  while (!pending.empty()) {
    const int current = pending.back();
    pending.pop_back();
    for (const int reader : readers[static_cast<size_t>(current)]) {
      const std::string& op = body.node(reader).op();
      if (op == "Floor" || op == "GreaterEqual") continue;
      if (op != "Mul" && op != "Add" && op != "AddV2" && op != "Sub" && op != "Identity")
        return false;
      if (seen.insert(reader).second) pending.push_back(reader);
    }
  }
  return !readers[static_cast<size_t>(node)].empty();
}

absl::StatusOr<TfEntry> EntryOf(TfProgram& program, const ImportOptions& options) {
  TfEntry entry;
  const TfBody& body = program.main();
  if (program.file().is_saved_model) {
    QUENCH_RETURN_IF_ERROR(ReadSignature(program, options, entry));
  } else if (!options.signature.empty()) {
    return InvalidArgument("signature `{}` is given, but the model is a graph, which has none",
                           options.signature);
  }
  StatusCollector problems;
  const auto read_list = [&](const std::vector<std::string>& texts, std::vector<TfNamed>& list) {
    for (const std::string& text : texts) {
      const auto named = std::find_if(list.begin(), list.end(),
                                      [&](const TfNamed& each) { return each.name == text; });
      absl::StatusOr<TfRef> ref =
          named != list.end() ? absl::StatusOr<TfRef>(named->ref) : CheckedTensor(body, text);
      problems.Add(ref.status());
      if (!ref.ok()) continue;
      const bool there = std::any_of(list.begin(), list.end(), [&](const TfNamed& each) {
        return each.ref == *ref && &list == &entry.inputs;
      });
      if (!there) list.push_back({Printable(text), *ref});
    }
  };
  if (!options.outputs.empty()) {
    std::vector<TfNamed> chosen = std::exchange(entry.outputs, {});
    for (const std::string& text : options.outputs) {
      const auto named = std::find_if(chosen.begin(), chosen.end(),
                                      [&](const TfNamed& each) { return each.name == text; });
      if (named != chosen.end())
        entry.outputs.push_back(*named);
      else
        read_list({text}, entry.outputs);
    }
  } else if (!program.file().is_saved_model) {
    entry.outputs = DefaultOutputs(body);
  }
  read_list(options.inputs, entry.inputs);
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  if (entry.outputs.empty()) return InvalidArgument("the model has no outputs; name some");
  QUENCH_RETURN_IF_ERROR(Needed(program, entry).Find());
  const auto needed = entry.needed.find(&body);
  if (needed == entry.needed.end()) return entry;
  std::vector<TfNamed> placeholders;
  for (const int node : needed->second) {
    const std::string& op = body.node(node).op();
    if (op == "Placeholder" || op == "PlaceholderV2")
      placeholders.push_back({Printable(body.node(node).name()), TfRef{node, 0}});
  }
  entry.inputs.insert(entry.inputs.begin(), placeholders.begin(), placeholders.end());
  return entry;
}

std::vector<UnsupportedOp> UnsupportedIn(const TfProgram& program, const TfEntry& entry,
                                         const FindConversion& find) {
  std::map<std::string, UnsupportedOp> found;
  for (const auto& [body, nodes] : entry.needed) {
    for (const int i : nodes) {
      const tf::NodeDef& node = body->node(i);
      const TensorflowOp* row = FindTensorflowRow(node.op());
      const bool flows = row != nullptr && row->convert == nullptr && row->same_as.empty();
      const bool known = (flows && (node.op() != "RandomUniform" || DrawsDropout(*body, i))) ||
                         program.library().contains(node.op());
      if (known || find("tensorflow", Printable(node.op())) != nullptr) continue;
      UnsupportedOp& op = found[Printable(node.op())];
      op.domain = "tensorflow";
      op.op = Printable(node.op());
      op.opset = program.file().graph.versions().producer();
      op.nodes.push_back(Printable(node.name()));
    }
  }
  std::vector<UnsupportedOp> ops;
  for (auto& [name, op] : found) ops.push_back(std::move(op));
  return ops;
}

}  // namespace quench::importer
