#include "services/importer/tensorflow/body.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>

#include <algorithm>

#include "common/base/near_names.h"
#include "common/base/printable.h"
#include "services/importer/tensorflow/convert.h"

namespace quench::importer {
namespace {

constexpr int64_t kMaxOutputs = 1 << 16;            // of one node
constexpr size_t kMaxConditions = size_t{1} << 22;  // entries of all nodes

// How many values an output of the operator stands for: `*attribute` is a number or a list.
int64_t CountOf(const tf::NodeDef& node, const std::string& attribute) {
  const tf::AttrValue* value = FindAttr(node, attribute);
  if (value == nullptr) return 1;
  if (value->has_list()) return value->list().type_size();
  return value->i();
}

struct Output {
  std::string name;
  int64_t count = 1;
};

std::vector<Output> OutputsOf(const tf::NodeDef& node, const TfLibrary& library) {
  std::vector<Output> outputs;
  const auto function = library.find(node.op());
  if (function != library.end()) {
    for (const auto& arg : function->second->signature().output_arg())
      outputs.push_back({arg.name(), 1});
    return outputs;
  }
  const TensorflowOp* row = FindTensorflowRow(node.op());
  if (row == nullptr) return outputs;
  for (const auto& text : absl::StrSplit(std::string(row->outputs), ' ')) {
    const std::vector<std::string> parts = absl::StrSplit(std::string(text), '*');
    outputs.push_back({parts[0], parts.size() > 1 ? CountOf(node, parts[1]) : 1});
    outputs.back().count = std::clamp<int64_t>(outputs.back().count, 0, kMaxOutputs);
  }
  return outputs;
}

class BodyReader {
 public:
  BodyReader(const TfLibrary& library, TfBody& body) : library_(library), body_(body) {}

  absl::Status Read() {
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      int64_t count = 0;
      for (const Output& output : OutputsOf(*body_.nodes[i], library_)) count += output.count;
      body_.outputs.push_back(static_cast<int>(std::min(count, kMaxOutputs)));
      if (!body_.by_name.emplace(body_.nodes[i]->name(), static_cast<int>(i)).second)
        problems_.Add(
            InvalidArgument("two nodes are called `{}`", Printable(body_.nodes[i]->name())));
    }
    if (body_.function != nullptr) {
      for (const auto& arg : body_.function->signature().input_arg())
        arguments_.emplace(arg.name(), static_cast<int>(arguments_.size()));
    }
    for (const tf::NodeDef* node : body_.nodes) ReadInputs(*node);
    ReadResults();
    QUENCH_RETURN_IF_ERROR(problems_.Finish());
    FindFrames();
    return FindConditions();
  }

 private:
  void ReadInputs(const tf::NodeDef& node) {
    std::vector<TfRef>& inputs = body_.inputs.emplace_back();
    std::vector<int>& controls = body_.controls.emplace_back();
    for (const std::string& text : node.input()) {
      if (!text.empty() && text[0] == '^') {
        const auto found = body_.by_name.find(text.substr(1));
        if (found != body_.by_name.end()) controls.push_back(found->second);
        continue;
      }
      absl::StatusOr<TfRef> ref = Resolve(text);
      if (ref.ok()) {
        inputs.push_back(*ref);
      } else {
        problems_.Add(Annotate(ref.status(), fmt::format("node `{}`", Printable(node.name()))));
      }
    }
  }

  void ReadResults() {
    if (body_.function == nullptr) return;
    for (const auto& arg : body_.function->signature().output_arg()) {
      const auto found = body_.function->ret().find(arg.name());
      if (found == body_.function->ret().end()) {
        problems_.Add(InvalidArgument("nothing gives the result `{}`", Printable(arg.name())));
        continue;
      }
      absl::StatusOr<TfRef> ref = Resolve(found->second);
      if (ref.ok()) body_.results.push_back(*ref);
      problems_.Add(ref.status());
    }
  }

  absl::StatusOr<TfRef> Resolve(const std::string& text) {
    if (body_.function == nullptr) return Widen(FindTensor(body_, text));
    if (const auto argument = arguments_.find(text); argument != arguments_.end())
      return TfRef{~argument->second, 0};
    const std::vector<std::string> parts = absl::StrSplit(text, ':');
    const auto found = body_.by_name.find(parts[0]);
    if (found == body_.by_name.end())
      return InvalidArgument("`{}` is neither a node nor an argument", Printable(text));
    int index = 0;
    if (parts.size() > 3 || (parts.size() == 3 && !absl::SimpleAtoi(parts[2], &index)))
      return InvalidArgument("`{}` is not an output of a node", Printable(text));
    return Widen(OutputNamed(found->second, parts.size() > 1 ? parts[1] : "", index));
  }

  absl::StatusOr<TfRef> OutputNamed(int node, const std::string& name, int index) const {
    const std::vector<Output> outputs = OutputsOf(body_.node(node), library_);
    int64_t first = 0;
    for (const Output& output : outputs) {
      if (output.name == name || outputs.size() == 1) break;
      first += output.count;
    }
    // The name says nothing if the operator is not known.
    if (first >= body_.outputs[static_cast<size_t>(node)]) first = 0;
    return TfRef{node, static_cast<int>(first) + index};
  }

  // Operators that are not known have the outputs that others read.
  absl::StatusOr<TfRef> Widen(absl::StatusOr<TfRef> ref) {
    if (!ref.ok() || ref->node < 0) return ref;
    int& outputs = body_.outputs[static_cast<size_t>(ref->node)];
    if (ref->output < outputs) return ref;
    const tf::NodeDef& node = body_.node(ref->node);
    const bool known = FindTensorflowRow(node.op()) != nullptr || library_.contains(node.op());
    if (ref->output < 0 || ref->output >= kMaxOutputs || known)
      return InvalidArgument("output {} of node `{}` ({}), which has {}", ref->output,
                             Printable(node.name()), Printable(node.op()), outputs);
    outputs = ref->output + 1;
    return ref;
  }

  // ---- Control flow of version 1 ----

  std::string FrameEnteredBy(const TfRef& ref) const {
    if (ref.node < 0) return "";
    const tf::NodeDef& node = body_.node(ref.node);
    if (node.op() != "Enter" && node.op() != "RefEnter") return "";
    const tf::AttrValue* name = FindAttr(node, "frame_name");
    return name == nullptr || name->s().empty() ? "frame" : name->s();
  }

  void FindFrames() {
    body_.frame_of_merge.resize(body_.nodes.size());
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const std::string& op = body_.nodes[i]->op();
      if ((op != "Merge" && op != "RefMerge") || body_.inputs[i].size() != 2) continue;
      const std::string frame = FrameEnteredBy(body_.inputs[i][0]);
      if (frame.empty()) continue;
      body_.frame_of_merge[i] = frame;
      body_.frames[frame].name = frame;
      body_.frames[frame].merges.push_back(static_cast<int>(i));
    }
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const std::string& op = body_.nodes[i]->op();
      if ((op != "Switch" && op != "RefSwitch") || body_.inputs[i].size() != 2) continue;
      const TfRef data = body_.inputs[i][0], predicate = body_.inputs[i][1];
      const bool ends = predicate.node >= 0 && body_.node(predicate.node).op() == "LoopCond";
      has_conditions_ = has_conditions_ || !ends;
      if (!ends || data.node < 0) continue;
      const std::string& frame = body_.frame_of_merge[static_cast<size_t>(data.node)];
      if (!frame.empty()) body_.frames[frame].condition = predicate.node;
    }
  }

  // In the order of what reads what; what a NextIteration gives counts as not yet there.
  std::vector<int> Order() const {
    std::vector<int> waiting(body_.nodes.size(), 0), order;
    std::vector<std::vector<int>> readers(body_.nodes.size());
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const auto add = [&](int from) {
        if (from < 0 || body_.node(from).op() == "NextIteration") return;
        readers[static_cast<size_t>(from)].push_back(static_cast<int>(i));
        ++waiting[i];
      };
      for (const TfRef& ref : body_.inputs[i]) add(ref.node);
      for (const int control : body_.controls[i]) add(control);
    }
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i] == 0) order.push_back(static_cast<int>(i));
    }
    for (size_t at = 0; at < order.size(); ++at) {
      for (const int reader : readers[static_cast<size_t>(order[at])]) {
        if (--waiting[static_cast<size_t>(reader)] == 0) order.push_back(reader);
      }
    }
    return order;
  }

  absl::Status FindConditions() {
    if (!has_conditions_) return absl::OkStatus();
    body_.conditions.resize(body_.nodes.size());
    size_t entries = 0;
    for (const int node : Order()) {
      const auto i = static_cast<size_t>(node);
      TfConditions& mine = body_.conditions[i];
      const std::string& op = body_.nodes[i]->op();
      if ((op == "Merge" || op == "RefMerge") && body_.inputs[i].size() == 2 &&
          body_.frame_of_merge[i].empty()) {
        const TfConditions a = ConditionsOf(body_, body_.inputs[i][0]);
        const TfConditions b = ConditionsOf(body_, body_.inputs[i][1]);
        std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                              std::inserter(mine, mine.end()));
      } else {
        for (const TfRef& ref : body_.inputs[i]) mine.merge(ConditionsOf(body_, ref));
        for (const int control : body_.controls[i]) {
          const TfConditions& theirs = body_.conditions[static_cast<size_t>(control)];
          mine.insert(theirs.begin(), theirs.end());
        }
      }
      if ((entries += mine.size()) > kMaxConditions)
        return absl::ResourceExhaustedError(
            "the graph's conditionals are too many, one in another");
    }
    return absl::OkStatus();
  }

  const TfLibrary& library_;
  TfBody& body_;
  std::unordered_map<std::string, int> arguments_;
  StatusCollector problems_;
  bool has_conditions_ = false;
};

}  // namespace

const tf::AttrValue* FindAttr(const tf::NodeDef& node, const std::string& name) {
  const auto found = node.attr().find(name);
  return found == node.attr().end() ? nullptr : &found->second;
}

const tf::FunctionDef* CalledBy(const tf::NodeDef& node, const TfLibrary& library) {
  std::string name = node.op();
  if (name == "PartitionedCall" || name == "StatefulPartitionedCall") {
    const tf::AttrValue* called = FindAttr(node, "f");
    if (called != nullptr) name = called->func().name();
  }
  const auto found = library.find(name);
  return found == library.end() ? nullptr : found->second;
}

absl::StatusOr<TfRef> FindTensor(const TfBody& body, const std::string& text) {
  const size_t colon = text.rfind(':');
  int output = 0;
  std::string name = text;
  if (colon != std::string::npos && absl::SimpleAtoi(text.substr(colon + 1), &output))
    name = text.substr(0, colon);
  const auto found = body.by_name.find(name);
  if (found != body.by_name.end()) return TfRef{found->second, output};
  std::vector<std::string> known;
  if (body.nodes.size() < 10'000) {
    for (const tf::NodeDef* node : body.nodes) known.push_back(Printable(node->name()));
  }
  const std::vector<std::string> near = NearNames(name, known);
  std::string list;
  for (const std::string& each : near)
    list += fmt::format("{}`{}`", list.empty() ? "" : ", ", each);
  return InvalidArgument("the model has no node `{}`{}", Printable(name),
                         list.empty() ? "" : "; similar ones are " + list);
}

TfConditions ConditionsOf(const TfBody& body, const TfRef& ref) {
  if (ref.node < 0 || body.conditions.empty()) return {};
  TfConditions conditions = body.conditions[static_cast<size_t>(ref.node)];
  const tf::NodeDef& node = body.node(ref.node);
  const std::vector<TfRef>& inputs = body.inputs_of(ref.node);
  if ((node.op() != "Switch" && node.op() != "RefSwitch") || inputs.size() != 2) return conditions;
  const bool ends = inputs[1].node >= 0 && body.node(inputs[1].node).op() == "LoopCond";
  if (!ends) conditions.insert({inputs[1], ref.output});
  return conditions;
}

absl::StatusOr<TfBody> BodyOf(const tf::GraphDef& graph, const TfLibrary& library) {
  TfBody body;
  for (const tf::NodeDef& node : graph.node()) body.nodes.push_back(&node);
  QUENCH_RETURN_IF_ERROR(BodyReader(library, body).Read());
  return body;
}

absl::StatusOr<TfBody> BodyOf(const tf::FunctionDef& function, const TfLibrary& library) {
  TfBody body;
  body.function = &function;
  for (const tf::NodeDef& node : function.node_def()) body.nodes.push_back(&node);
  QUENCH_RETURN_IF_ERROR(
      Annotate(BodyReader(library, body).Read(),
               fmt::format("function `{}`", Printable(function.signature().name()))));
  return body;
}

}  // namespace quench::importer
