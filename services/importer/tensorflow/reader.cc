#include "services/importer/tensorflow/reader.h"

#include <algorithm>

#include "common/base/printable.h"
#include "services/importer/graph/interface.h"
#include "services/importer/tensorflow/graph_reader.h"
#include "services/importer/tensorflow/restore.h"

namespace quench::importer {
namespace {

constexpr int64_t kWavHeader = 44;

bool IsVariable(const std::string& op) {
  return op == "VarHandleOp" || op == "VariableV2" || op == "Variable";
}

std::optional<Attribute> AttributeOf(const tf::AttrValue& value) {
  switch (value.value_case()) {
    case tf::AttrValue::kS:
      return Printable(value.s());
    case tf::AttrValue::kI:
      return value.i();
    case tf::AttrValue::kF:
      return static_cast<double>(value.f());
    case tf::AttrValue::kB:
      return int64_t{value.b()};
    case tf::AttrValue::kType: {
      const absl::StatusOr<DataType> dtype = DataTypeOf(value.type());
      return dtype.ok() ? static_cast<int64_t>(*dtype) : int64_t{0};
    }
    case tf::AttrValue::kShape:
      if (const auto dims = DimsOf(value.shape())) return *dims;
      return std::nullopt;
    case tf::AttrValue::kList: {
      const auto& list = value.list();
      if (list.i_size() > 0) return std::vector<int64_t>(list.i().begin(), list.i().end());
      if (list.b_size() > 0) return std::vector<int64_t>(list.b().begin(), list.b().end());
      if (list.f_size() > 0) return std::vector<double>(list.f().begin(), list.f().end());
      if (list.s_size() > 0) {
        std::vector<std::string> texts;
        for (const std::string& text : list.s()) texts.push_back(Printable(text));
        return texts;
      }
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

DataType TypeIn(const tf::NodeDef& node, const char* attribute) {
  const tf::AttrValue* value = FindAttr(node, attribute);
  if (value == nullptr) return DataType::kUndefined;
  const absl::StatusOr<DataType> dtype = DataTypeOf(value->type());
  return dtype.ok() ? *dtype : DataType::kUndefined;
}

// The element type that the node says its first output has, where conversions ask for it.
DataType DeclaredType(const tf::NodeDef& node) {
  const std::string& op = node.op();
  const auto either = [](DataType said, DataType fallback) {
    return said == DataType::kUndefined ? fallback : said;
  };
  if (op == "Cast") return TypeIn(node, "DstT");
  if (op == "Shape") return either(TypeIn(node, "out_type"), DataType::kI32);
  if (op == "Rank") return DataType::kI32;
  if (op == "BroadcastArgs") return either(TypeIn(node, "T"), DataType::kI32);
  if (op == "ArgMax" || op == "ArgMin") return either(TypeIn(node, "output_type"), DataType::kI64);
  // Conversions that are TensorFlow Lite's compute in f32 where the model has f16.
  const DataType dtype = TypeIn(node, "T");
  return dtype == DataType::kF16 ? dtype : DataType::kUndefined;
}

DataType IndexType(const tf::NodeDef& node) {
  if (node.op() == "Unique") return TypeIn(node, "out_idx");
  if (node.op() == "TopKV2") return TypeIn(node, "index_type");
  return DataType::kUndefined;
}

// A file of 16-bit samples as bytes, where DecodeWav says how many it wants.
std::optional<int64_t> WavBytes(const TfBody& body, int placeholder) {
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    if (body.nodes[i]->op() != "DecodeWav" || body.inputs[i].empty() ||
        body.inputs[i][0].node != placeholder)
      continue;
    const auto number = [&](const char* name) {
      const tf::AttrValue* value = FindAttr(*body.nodes[i], name);
      return value == nullptr ? int64_t{-1} : value->i();
    };
    const int64_t samples = number("desired_samples");
    const int64_t channels = std::clamp<int64_t>(number("desired_channels"), 1, 16);
    if (samples < 0 || samples > kMaxSize / 64) return -1;
    return kWavHeader + 2 * samples * channels;
  }
  return std::nullopt;
}

}  // namespace

// ---- Constants ----

void TensorflowReader::LoadConstants() {
  for (const auto& [body, nodes] : entry_.needed) {
    for (const int i : nodes) {
      const tf::NodeDef& node = body->node(i);
      if (IsVariable(node.op())) LoadVariable(node);
      if (node.op() != "Const") continue;
      const tf::AttrValue* value = FindAttr(node, "value");
      if (value == nullptr || !value->has_tensor()) {
        Problem(node, "has no value");
        continue;
      }
      const std::span<const std::byte> file = program_.file().mapping == nullptr
                                                  ? std::span<const std::byte>()
                                                  : program_.file().mapping->bytes();
      absl::StatusOr<std::shared_ptr<const Constant>> constant =
          AddTensor(value->tensor(), file, Printable(node.name()), weights_);
      if (constant.ok())
        constants_[&node] = *std::move(constant);
      else
        problems_.Add(
            Annotate(constant.status(), fmt::format("node `{}`", Printable(node.name()))));
    }
  }
}

void TensorflowReader::LoadVariable(const tf::NodeDef& node) {
  if (program_.file().checkpoint == nullptr) {
    Problem(node,
            "is a variable, whose contents are not in this file: freeze the graph, or give the "
            "saved model it belongs to",
            true);
    return;
  }
  const auto restored = keys_.find(node.name());
  const tf::AttrValue* shared = FindAttr(node, "shared_name");
  std::string key = node.name();
  if (restored != keys_.end())
    key = restored->second;
  else if (shared != nullptr && !shared->s().empty())
    key = shared->s();
  absl::StatusOr<std::shared_ptr<const Constant>> constant =
      program_.file().checkpoint->AddVariable(key, weights_);
  if (constant.ok())
    variables_[node.name()] = *std::move(constant);
  else
    problems_.Add(
        Annotate(constant.status(), fmt::format("variable `{}`", Printable(node.name()))));
}

TfItem TensorflowReader::ReadVariable(TfScope& scope, const std::string& name,
                                      const tf::NodeDef& user) {
  const auto found = variables_.find(name);
  if (found == variables_.end()) {
    if (problems_.ok())
      Problem(user, fmt::format("reads `{}`, which is not a variable", Printable(name)));
    return {};
  }
  TfTarget& target = *scope.target;
  return {PushConstant(*target.graph, target.values.Take(Printable(name)), found->second), "", -1};
}

// ---- Values ----

void TensorflowReader::Problem(const tf::NodeDef& node, const std::string& text,
                               bool is_unsupported) {
  const std::string whole =
      fmt::format("node `{}` ({}): {}", Printable(node.name()), Printable(node.op()), text);
  problems_.Add(is_unsupported ? Unsupported("{}", whole) : InvalidArgument("{}", whole));
}

ValueId TensorflowReader::AddOwn(TfTarget& target, const std::string& op, const std::string& name,
                                 std::vector<ValueId> inputs, Attributes attributes) {
  Node node;
  node.name = target.nodes.Take(name);
  node.op = op;
  node.version = kOwnVersion;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  const ValueId output = PushValue(*target.graph, target.values.Take(name));
  node.outputs = {output};
  PushNode(*target.graph, std::move(node));
  return output;
}

ValueId TensorflowReader::AddInts(TfTarget& target, const std::string& name, const Tensor& tensor) {
  return PushConstant(*target.graph, target.values.Take(name),
                      std::make_shared<const Constant>(Constant{tensor, "", {}}));
}

// `id`, or a copy where it cannot be an output of its graph once more.
ValueId TensorflowReader::Fresh(TfTarget& target, ValueId id, std::set<ValueId>& taken) {
  if (id == kNone) return id;
  if (target.graph->value(id).producer != kNone && taken.insert(id).second) return id;
  return AddOwn(target, "Identity", target.graph->value(id).name + "/copy", {id});
}

ValueId TensorflowReader::ValueOf(const TfItem& item, const tf::NodeDef& user) {
  if (item.id != kNone) return item.id;
  if (!item.resource.empty()) {
    Problem(
        user,
        fmt::format("uses the variable `{}` otherwise than reading it", Printable(item.resource)),
        true);
  } else if (item.array >= 0) {
    Problem(user, "reads an array before it is written", true);
  }
  return kNone;
}

TensorflowReader::Items TensorflowReader::InputsOf(TfScope& scope, int node) {
  Items items;
  for (const TfRef& ref : scope.body->inputs_of(node)) items.push_back(Resolve(scope, ref));
  return items;
}

TfItem TensorflowReader::Resolve(TfScope& scope, const TfRef& ref) {
  if (const auto bound = scope.bound.find(ref); bound != scope.bound.end()) return bound->second;
  if (ref.node < 0) {
    const auto argument = static_cast<size_t>(~ref.node);
    return argument < scope.args.size() ? scope.args[argument] : TfItem{};
  }
  Ensure(scope, ref.node);
  const Items& items = scope.done[ref.node];
  return static_cast<size_t>(ref.output) < items.size() ? items[static_cast<size_t>(ref.output)]
                                                        : TfItem{};
}

// Values that must be there before a node is read; control flow asks for its own.
std::vector<TfRef> TensorflowReader::NeedsOf(const TfScope& scope, int node) const {
  const TfBody& body = *scope.body;
  if (scope.branch != nullptr &&
      !body.conditions[static_cast<size_t>(node)].contains(*scope.branch))
    return {};
  const std::string& op = body.node(node).op();
  if (op == "Merge" || op == "RefMerge" || op == "Exit" || op == "RefExit" || op == "Enter" ||
      op == "RefEnter")
    return {};
  if (op == "Switch" || op == "RefSwitch") return {body.inputs_of(node)[0]};
  return body.inputs_of(node);
}

// Everything before `root`, then it: nodes wait in a list, for graphs are deeper than the stack.
void TensorflowReader::Ensure(TfScope& scope, int root) {
  if (scope.done.contains(root)) return;
  std::vector<int> stack = {root};
  std::set<int> open;
  while (!stack.empty()) {
    const int node = stack.back();
    if (scope.done.contains(node)) {
      stack.pop_back();
      continue;
    }
    bool ready = true;
    const bool again = !open.insert(node).second;
    for (const TfRef& ref : NeedsOf(scope, node)) {
      if (ref.node < 0 || scope.bound.contains(ref) || scope.done.contains(ref.node)) continue;
      if (again) {
        Problem(scope.body->node(node), "needs its own result");
        scope.done[ref.node] = {};
        continue;
      }
      ready = false;
      stack.push_back(ref.node);
    }
    if (!ready && !again) continue;
    stack.pop_back();
    Evaluate(scope, node);
  }
}

void TensorflowReader::Evaluate(TfScope& scope, int node) {
  Items items;
  const TfBody& body = *scope.body;
  const auto outputs = static_cast<size_t>(std::max(body.outputs[static_cast<size_t>(node)], 1));
  if (++node_count_ > kMaxTensorflowNodes || !context_.Check().ok()) {
    if (node_count_ == kMaxTensorflowNodes + 1)
      problems_.Add(absl::ResourceExhaustedError(
          fmt::format("the model has more than {} nodes", kMaxTensorflowNodes)));
    scope.done[node] = Items(outputs);
    return;
  }
  scope.done[node] = Items(outputs);  // while it is read: what comes back to it finds nothing
  if (!EvaluateFlow(scope, node, items)) AddNode(scope, node, items);
  items.resize(outputs);
  scope.done[node] = std::move(items);
}

// True when the node is understood here.
bool TensorflowReader::EvaluateFlow(TfScope& scope, int node, Items& items) {
  const TfBody& body = *scope.body;
  const tf::NodeDef& def = body.node(node);
  const std::string& op = def.op();
  const std::vector<TfRef>& inputs = body.inputs_of(node);
  if (scope.branch != nullptr &&
      !body.conditions[static_cast<size_t>(node)].contains(*scope.branch)) {
    const bool parts = (op == "Switch" || op == "RefSwitch") && inputs.size() == 2 &&
                       inputs[1] == scope.branch->first;
    for (int i = 0; i < body.outputs[static_cast<size_t>(node)]; ++i)
      items.push_back(Capture(scope, Resolve(*scope.outer, parts ? inputs[0] : TfRef{node, i})));
    return true;
  }
  if (op == "Const") {
    const auto constant = constants_.find(&def);
    if (constant == constants_.end()) return true;  // reported already
    TfTarget& target = *scope.target;
    items.push_back(
        {PushConstant(*target.graph, target.values.Take(Printable(scope.prefix + def.name())),
                      constant->second),
         "", -1});
  } else if (op == "Placeholder" || op == "PlaceholderV2") {
    Problem(def, "is an input that nothing gives a value to");
  } else if (op == "VarHandleOp") {
    items.push_back({kNone, def.name(), -1});
  } else if (op == "VariableV2" || op == "Variable") {
    items.push_back(ReadVariable(scope, def.name(), def));
  } else if (op == "ReadVariableOp") {
    const TfItem handle = inputs.empty() ? TfItem{} : Resolve(scope, inputs[0]);
    items.push_back(ReadVariable(scope, handle.resource, def));
  } else if (op == "ResourceGather") {
    const Items given = InputsOf(scope, node);
    if (given.size() != 2) return false;
    const TfItem table = ReadVariable(scope, given[0].resource, def);
    items.push_back({AddOwn(*scope.target, "Gather", Printable(scope.prefix + def.name()),
                            {table.id, ValueOf(given[1], def)}),
                     "", -1});
  } else if ((op == "Switch" || op == "RefSwitch") && inputs.size() == 2) {
    const TfItem data = Resolve(scope, inputs[0]);
    items = {data, data};
  } else if ((op == "Enter" || op == "RefEnter") && inputs.size() == 1) {
    if (scope.outer == nullptr || scope.frame.empty())
      Problem(def, "enters a loop that nothing ends", true);
    else
      items.push_back(Capture(scope, Resolve(*scope.outer, inputs[0])));
  } else if (op == "LoopCond" || op == "NextIteration") {
    items = InputsOf(scope, node);
  } else if (op == "Exit" || op == "RefExit") {
    ReadExit(scope, node, items);
  } else if (op == "Merge" || op == "RefMerge") {
    ReadMerge(scope, node, items);
  } else if (op == "If" || op == "StatelessIf") {
    ReadIf(scope, node, items);
  } else if (op == "While" || op == "StatelessWhile") {
    ReadWhile(scope, node, items);
  } else if (CalledBy(def, program_.library()) != nullptr) {
    ReadCall(scope, node, items);
  } else if (op == "RandomUniform") {
    Dropout(scope, node, items);
  } else if (op == "Identity" || op == "IdentityN" || op == "StopGradient") {
    // Variables and arrays pass through, values by a node.
    Items given = InputsOf(scope, node);
    const bool plain = std::all_of(given.begin(), given.end(),
                                   [](const TfItem& item) { return item.id != kNone; });
    if (plain) return false;
    items = std::move(given);
  } else {
    return ReadArray(scope, node, items);
  }
  return true;
}

// Dropout that was left in training mode drops nothing.
void TensorflowReader::Dropout(TfScope& scope, int node, Items& items) {
  const tf::NodeDef& def = scope.body->node(node);
  const Items given = InputsOf(scope, node);
  const std::string name = Printable(scope.prefix + def.name());
  TfTarget& target = *scope.target;
  DataType dtype = TypeIn(def, "dtype");
  if (!IsFloat(dtype)) dtype = DataType::kF32;
  const ValueId shape =
      AddOwn(target, "Cast", name + "/shape", {given.empty() ? kNone : ValueOf(given[0], def)},
             {{"to", static_cast<int64_t>(DataType::kI64)}});
  // The largest number below 1 whose sum with 1, which a probability to keep may be, is below 2.
  const float step = dtype == DataType::kF16    ? 0x1p-10F
                     : dtype == DataType::kBF16 ? 0x1p-7F
                                                : 0x1p-23F;
  const ValueId most = AddInts(target, name + "/most", Tensor::ScalarF32(1.0F - step));
  const ValueId typed =
      AddOwn(target, "Cast", name + "/typed", {most}, {{"to", static_cast<int64_t>(dtype)}});
  items.push_back({AddOwn(target, "Expand", name, {typed, shape}), "", -1});
  target.graph->metadata["warning." + name] = fmt::format(
      "node `{}` (RandomUniform): a dropout of training, which drops nothing here", name);
}

void TensorflowReader::AddNode(TfScope& scope, int index, Items& items) {
  const tf::NodeDef& def = scope.body->node(index);
  TfTarget& target = *scope.target;
  const Items given = InputsOf(scope, index);
  Node node;
  node.op = Printable(def.op());
  node.domain = "tensorflow";
  node.version = program_.file().graph.versions().producer();
  node.origin = Printable(def.name());
  for (const TfItem& item : given) node.inputs.push_back(ValueOf(item, def));
  for (const auto& [name, value] : def.attr()) {
    if (name.starts_with("_")) continue;
    if (name.empty()) {
      Problem(def, "an attribute has no name");
      continue;
    }
    if (value.value_case() == tf::AttrValue::kPlaceholder)
      Problem(def,
              fmt::format("attribute `{}` is that of a call, which is not read", Printable(name)),
              true);
    if (std::optional<Attribute> attribute = AttributeOf(value))
      node.attributes.emplace(Printable(name), *std::move(attribute));
  }
  if (const auto dense = options_.convert_config.find("use_dense");
      node.op == "MatMul" && dense != options_.convert_config.end())
    node.attributes["use_dense"] = int64_t{dense->second};
  const std::string name = Printable(scope.prefix + def.name());
  node.name = target.nodes.Take(name);
  const int outputs = scope.body->outputs[static_cast<size_t>(index)];
  for (int i = 0; i < outputs; ++i) {
    const ValueId id =
        PushValue(*target.graph, target.values.Take(i == 0 ? name : fmt::format("{}:{}", name, i)));
    target.graph->value(id).type.dtype = i == 0   ? DeclaredType(def)
                                         : i == 1 ? IndexType(def)
                                                  : DataType::kUndefined;
    node.outputs.push_back(id);
    items.push_back({id, "", -1});
  }
  PushNode(*target.graph, std::move(node));
}

// ---- The model ----

void TensorflowReader::ReadInputs(TfScope& scope) {
  std::vector<DeclaredInput> declared;
  std::set<std::string> names;
  std::vector<TfRef> refs;
  for (const TfNamed& named : entry_.inputs) {
    const tf::NodeDef& def = scope.body->node(named.ref.node);
    names.insert(named.name);
    if (const auto frozen = options_.freeze_params.find(named.name);
        frozen != options_.freeze_params.end()) {
      absl::StatusOr<std::shared_ptr<const Constant>> constant =
          weights_.Add(named.name, frozen->second);
      problems_.Add(constant.status());
      if (constant.ok()) problems_.Add(weights_.Finish());
      if (constant.ok() && problems_.ok())
        scope.bound[named.ref] = {
            PushConstant(*scope.target->graph, scope.target->values.Take(named.name), *constant),
            "", -1};
      continue;
    }
    DeclaredInput input;
    input.name = named.name;
    const bool is_placeholder = def.op() == "Placeholder" || def.op() == "PlaceholderV2";
    DataType dtype = DataType::kUndefined;
    for (const char* attribute : {"dtype", "DstT", "out_type", "T", "type"}) {
      if (dtype == DataType::kUndefined) dtype = TypeIn(def, attribute);
    }
    if (!is_placeholder && dtype == DataType::kUndefined) dtype = DataType::kF32;
    if (def.op() == "DecodeWav" && named.ref.output == 1) dtype = DataType::kI32;
    input.type = Type::Tensor(dtype, {});
    const tf::AttrValue* shape = is_placeholder ? FindAttr(def, "shape") : nullptr;
    const std::optional<std::vector<int64_t>> dims =
        shape == nullptr || dtype == DataType::kString ? std::nullopt : DimsOf(shape->shape());
    if (dims) {
      input.dims.emplace();
      for (const int64_t dim : *dims) input.dims->push_back({dim, ""});
      // Graphs of old say nothing by an empty shape.
      if (input.dims->empty() && options_.shapes.contains(input.name)) input.dims.reset();
    }
    if (dtype == DataType::kString && is_placeholder) {
      if (const std::optional<int64_t> bytes = WavBytes(*scope.body, named.ref.node)) {
        input.type = Type::Tensor(DataType::kU8, {});
        input.dims = {{{*bytes, ""}}};
      }
    }
    declared.push_back(std::move(input));
    refs.push_back(named.ref);
  }
  absl::StatusOr<std::vector<GraphInput>> inputs =
      ResolveInputs(std::move(declared), names, true, options_, *scope.target->graph->symbols);
  if (!inputs.ok()) return problems_.Add(inputs.status());
  for (size_t i = 0; i < refs.size(); ++i) {
    const ValueId id =
        PushInput(*scope.target->graph, scope.target->values, scope.target->nodes, (*inputs)[i]);
    scope.bound[refs[i]] = {id, "", -1};
  }
}

void TensorflowReader::AddOutputs(TfScope& scope) {
  TfTarget& target = *scope.target;
  std::set<ValueId> taken;
  for (const TfNamed& named : entry_.outputs) {
    const TfItem item = Resolve(scope, named.ref);
    const ValueId id = ValueOf(item, scope.body->node(named.ref.node));
    if (id == kNone) {
      if (problems_.ok()) problems_.Add(InvalidArgument("output `{}` has no value", named.name));
      continue;
    }
    ValueId output = Fresh(target, id, taken);
    const std::string& called = target.graph->value(output).name;
    if (called != named.name && !target.values.Contains(named.name)) {
      target.graph->value(output).name = target.values.Take(named.name);
    } else if (called != named.name) {
      // The name is that of an inner value, or of an input.
      output = AddOwn(target, "Identity", named.name, {output});
    }
    target.graph->outputs.push_back(output);
  }
}

absl::StatusOr<Graph> TensorflowReader::Read() {
  Graph graph;
  graph.name = "main";
  graph.stage = Stage::kImported;
  graph.metadata["producer"] = "TensorFlow";
  TfTarget target;
  target.graph = &graph;
  TfScope scope;
  scope.body = &program_.main();
  scope.target = &target;
  if (program_.file().checkpoint != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(keys_, RestoredKeys(program_));
  }
  LoadConstants();
  QUENCH_RETURN_IF_ERROR(weights_.Finish());
  QUENCH_RETURN_IF_ERROR(problems_.Finish());
  ReadInputs(scope);
  QUENCH_RETURN_IF_ERROR(problems_.Finish());
  AddOutputs(scope);
  QUENCH_RETURN_IF_ERROR(context_.Check());
  QUENCH_RETURN_IF_ERROR(problems_.Finish());
  return graph;
}

absl::StatusOr<Graph> ReadTensorflowGraph(TfProgram& program, const TfEntry& entry,
                                          const ImportOptions& options, WeightWriter& weights,
                                          const StepContext& context) {
  return TensorflowReader(program, entry, options, weights, context).Read();
}

}  // namespace quench::importer
