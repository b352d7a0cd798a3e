#include "services/importer/torch/graph_builder.h"

#include <algorithm>

#include "common/base/status.h"

namespace quench::importer {
namespace {

constexpr int kOpset = 21;  // of nodes in ONNX's vocabulary

std::optional<int64_t> StaticElement(const Value& value) {
  if (!value.elements || value.elements->size() != 1 || !(*value.elements)[0].is_static())
    return std::nullopt;
  return (*value.elements)[0].value();
}

}  // namespace

GraphBuilder::GraphBuilder(Graph& graph, const FindConversion& find) : graph_(graph), find_(find) {
  scopes_.push_back(std::make_shared<Body>());
}

Graph& GraphBuilder::current() {
  return scopes_.back()->graph == nullptr ? graph_ : *scopes_.back()->graph;
}

Handle GraphBuilder::Register(Known known) {
  known_.push_back(std::move(known));
  return static_cast<Handle>(known_.size() - 1);
}

// ---- Values ----

Handle GraphBuilder::AddInput(const GraphInput& input) {
  const ValueId id = PushInput(graph_, value_names_, node_names_, input);
  Type type = input.type;
  for (size_t i = 0; i < input.order.size(); ++i)
    type.dims[i] = input.type.dims[static_cast<size_t>(input.order[i])];
  const Handle handle =
      Register({graph_.value(id).name, scopes_.front(), id, probe_.AddValue(type), nullptr, true});
  scopes_.front()->values[handle] = id;
  return handle;
}

Handle GraphBuilder::AddConstant(const std::string& name, Tensor tensor) {
  auto constant = std::make_shared<Constant>();
  constant->tensor = std::move(tensor);
  const ValueId probe = probe_.AddConstant(constant);
  return Register({name, nullptr, kNone, probe, std::move(constant), false});
}

// The value in the body that nodes go to now. Values of outer graphs are captured by their names.
ValueId GraphBuilder::Use(Handle handle) {
  Known& known = known_[static_cast<size_t>(handle)];
  Body& here = *scopes_.back();
  if (const auto found = here.values.find(handle); found != here.values.end()) return found->second;
  if (known.constant != nullptr) {
    known.is_used = true;
    const std::string name = value_names_.Take(Printable(known.name), "constant");
    return here.values[handle] = PushConstant(current(), name, known.constant);
  }
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if ((*scope)->values.contains(handle)) break;
    known.is_captured = true;
    (*scope)->values[handle] = PushValue(*(*scope)->graph, known.name);
  }
  return here.values.at(handle);
}

const Tensor* GraphBuilder::KnownTensor(Handle handle) const {
  const Value& value = probe_.value(Get(handle).probe);
  return value.constant == nullptr ? nullptr : &value.constant->tensor;
}

std::optional<double> GraphBuilder::KnownNumber(Handle handle) const {
  const Tensor* tensor = KnownTensor(handle);
  if (tensor != nullptr && tensor->size() == 1) return tensor->FloatAt(0);
  const std::optional<int64_t> element = StaticElement(probe_.value(Get(handle).probe));
  return element ? std::optional<double>(static_cast<double>(*element)) : std::nullopt;
}

std::optional<int64_t> GraphBuilder::KnownInt(Handle handle) const {
  const Tensor* tensor = KnownTensor(handle);
  if (tensor != nullptr && tensor->size() == 1 &&
      (IsInteger(tensor->dtype()) || tensor->dtype() == DataType::kBool))
    return tensor->IntAt(0);
  return StaticElement(probe_.value(Get(handle).probe));
}

// ---- Nodes ----

absl::Status GraphBuilder::AddListArgument(const std::string& name, const TorchList& list,
                                           Node& node, std::vector<std::string>& names,
                                           std::vector<Handle>& inputs) {
  bool texts = !list.items.empty(), reals = false, plain = true;
  for (const TorchValue& item : list.items) {
    texts = texts && std::holds_alternative<std::string>(item);
    reals = reals || std::holds_alternative<double>(item);
    plain = plain && (std::holds_alternative<int64_t>(item) || std::holds_alternative<bool>(item) ||
                      std::holds_alternative<double>(item));
  }
  if (texts) {
    std::vector<std::string> all;
    for (const TorchValue& item : list.items) all.push_back(std::get<std::string>(item));
    node.attributes[name] = std::move(all);
    return absl::OkStatus();
  }
  if (reals && plain) {
    std::vector<double> all;
    for (const TorchValue& item : list.items) {
      const auto* real = std::get_if<double>(&item);
      const auto* integer = std::get_if<int64_t>(&item);
      all.push_back(real != nullptr      ? *real
                    : integer != nullptr ? static_cast<double>(*integer)
                                         : 0);
    }
    node.attributes[name] = std::move(all);
    return absl::OkStatus();
  }
  std::vector<int64_t> all;
  for (size_t i = 0; i < list.items.size(); ++i) {
    const TorchValue& item = list.items[i];
    if (const auto* integer = std::get_if<int64_t>(&item)) {
      all.push_back(*integer);
    } else if (const auto* flag = std::get_if<bool>(&item)) {
      all.push_back(*flag ? 1 : 0);
    } else if (IsNone(item)) {
      all.push_back(kAbsent);
    } else if (std::holds_alternative<CellPtr>(item) ||
               std::holds_alternative<RuntimeNumber>(item)) {
      all.push_back(kInInput);
      QUENCH_RETURN_IF_ERROR(AddArgument(fmt::format("{}.{}", name, i), item, node, names, inputs));
    } else {
      return InvalidArgument("{} has an element that is neither a number nor a tensor", name);
    }
  }
  node.attributes[name] = std::move(all);
  return absl::OkStatus();
}

absl::Status GraphBuilder::AddArgument(const std::string& name, const TorchValue& value, Node& node,
                                       std::vector<std::string>& names,
                                       std::vector<Handle>& inputs) {
  if (IsNone(value)) return absl::OkStatus();
  if (const auto* flag = std::get_if<bool>(&value)) {
    node.attributes[name] = int64_t{*flag};
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    node.attributes[name] = *integer;
  } else if (const auto* real = std::get_if<double>(&value)) {
    node.attributes[name] = *real;
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    node.attributes[name] = *text;
  } else if (const auto* number = std::get_if<RuntimeNumber>(&value)) {
    names.push_back(name);
    inputs.push_back(number->handle);
  } else if (const auto* cell = std::get_if<CellPtr>(&value)) {
    names.push_back(name);
    inputs.push_back((*cell)->handle);
    const auto mark = [&](const char* attribute) {
      Attribute& marked =
          node.attributes.try_emplace(attribute, std::vector<std::string>{}).first->second;
      std::get<std::vector<std::string>>(marked).push_back(name);
    };
    if ((*cell)->is_number) mark(kNumberNames);
    if ((*cell)->is_complex) mark(kComplexNames);
  } else if (const auto* list = std::get_if<std::shared_ptr<TorchList>>(&value)) {
    return AddListArgument(name, **list, node, names, inputs);
  } else {
    return InvalidArgument("{} is neither a number, a text, a tensor nor a list of these", name);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Handle>> GraphBuilder::AddCall(const std::string& domain,
                                                          const std::string& op,
                                                          const std::string& name,
                                                          const TorchArguments& arguments,
                                                          size_t outputs) {
  Node node;
  node.domain = domain;
  node.op = op;
  node.version = 1;
  node.origin = Printable(name);
  std::vector<std::string> names;
  std::vector<Handle> inputs;
  for (const auto& [argument, value] : arguments)
    QUENCH_RETURN_IF_ERROR(Annotate(AddArgument(argument, value, node, names, inputs), op));
  node.attributes[kInputNames] = std::move(names);
  node.name = node_names_.Take(node.origin, op);
  std::vector<ValueId> probed;
  for (const Handle input : inputs) {
    node.inputs.push_back(Use(input));
    probed.push_back(Get(input).probe);
  }
  for (size_t i = 0; i < outputs; ++i)
    node.outputs.push_back(PushValue(current(), value_names_.Take(node.name)));
  const std::vector<ValueId> types = probe_.Convert(node, probed, find_(domain, op));
  std::vector<Handle> handles;
  for (size_t i = 0; i < outputs; ++i) {
    const Handle handle = Register({current().value(node.outputs[i]).name, scopes_.back(),
                                    node.outputs[i], types[i], nullptr, true});
    scopes_.back()->values[handle] = node.outputs[i];
    handles.push_back(handle);
  }
  PushNode(current(), std::move(node));
  ++num_nodes_;
  return handles;
}

Handle GraphBuilder::AddPlain(const std::string& op, const std::string& name,
                              const std::vector<Handle>& inputs, Attributes attributes) {
  Node node;
  node.op = op;
  node.version = kOpset;
  node.name = node_names_.Take(Printable(name), op);
  node.attributes = std::move(attributes);
  std::vector<ValueId> probed;
  for (const Handle input : inputs) {
    node.inputs.push_back(Use(input));
    probed.push_back(Get(input).probe);
  }
  node.outputs = {PushValue(current(), value_names_.Take(node.name))};
  const ValueId type = probe_.Convert(node, probed, find_("", op))[0];
  const ValueId output = node.outputs[0];
  const Handle handle =
      Register({current().value(output).name, scopes_.back(), output, type, nullptr, true});
  scopes_.back()->values[handle] = output;
  PushNode(current(), std::move(node));
  ++num_nodes_;
  return handle;
}

// ---- Bodies ----

std::shared_ptr<GraphBuilder::Body> GraphBuilder::EnterNew() {
  auto body = std::make_shared<Body>();
  body->graph = std::make_shared<Graph>();
  body->graph->name = "body";
  body->graph->stage = Stage::kImported;
  body->graph->symbols = graph_.symbols;
  Enter(body);
  return body;
}

void GraphBuilder::Enter(std::shared_ptr<Body> body) { scopes_.push_back(std::move(body)); }
void GraphBuilder::Leave() { scopes_.pop_back(); }

bool GraphBuilder::IsVisible(Handle handle) const {
  const Known& known = Get(handle);
  return known.constant != nullptr ||
         std::find(scopes_.begin(), scopes_.end(), known.scope) != scopes_.end();
}

bool GraphBuilder::IsOuter(Handle handle) const {
  const Known& known = Get(handle);
  return known.constant != nullptr || known.scope != scopes_.back();
}

Handle GraphBuilder::AddBodyInput(const std::shared_ptr<Body>& body, const std::string& name,
                                  Handle like, bool same_sizes) {
  const ValueId id = PushValue(*body->graph, value_names_.Take(Printable(name), "carried"));
  body->graph->inputs.push_back(id);
  const ValueId probe = same_sizes ? probe_.AddValue(TypeOf(like)) : probe_.Blur(Get(like).probe);
  const Handle handle = Register({body->graph->value(id).name, body, id, probe, nullptr, true});
  body->values[handle] = id;
  return handle;
}

void GraphBuilder::AddBodyOutput(Handle handle) {
  Graph& body = current();
  ValueId id = Use(handle);
  const bool taken = std::count(body.outputs.begin(), body.outputs.end(), id) > 0;
  if (body.value(id).producer == kNone || taken) {
    const Handle copy = AddPlain("Identity", NameOf(handle) + "/copy", {handle});
    id = Use(copy);
  }
  body.outputs.push_back(id);
}

std::vector<Handle> GraphBuilder::AddIf(const std::string& name, Handle condition,
                                        const std::shared_ptr<Body>& then_body,
                                        const std::shared_ptr<Body>& else_body,
                                        const std::vector<std::pair<Handle, Handle>>& results) {
  Node node;
  node.op = "If";
  node.version = kOpset;
  node.name = node_names_.Take(Printable(name), "If");
  node.inputs = {Use(condition)};
  // Values that the bodies capture must be there for a body that is nested in another one.
  for (const auto& body : {then_body, else_body}) {
    for (const auto& [handle, id] : body->values) {
      if (Get(handle).scope != body && Get(handle).constant == nullptr) Use(handle);
    }
  }
  std::vector<Handle> handles;
  for (const auto& [first, second] : results) {
    const ValueId id = PushValue(current(), value_names_.Take(node.name));
    node.outputs.push_back(id);
    const ValueId probe = probe_.Join(Get(first).probe, Get(second).probe);
    handles.push_back(
        Register({current().value(id).name, scopes_.back(), id, probe, nullptr, true}));
    scopes_.back()->values[handles.back()] = id;
  }
  node.attributes["then_branch"] = GraphPtr(then_body->graph);
  node.attributes["else_branch"] = GraphPtr(else_body->graph);
  PushNode(current(), std::move(node));
  ++num_nodes_;
  return handles;
}

std::vector<Handle> GraphBuilder::AddLoop(const std::string& name, Handle count, Handle condition,
                                          const std::vector<Handle>& initial,
                                          const std::shared_ptr<Body>& body,
                                          const std::vector<Handle>& results) {
  Node node;
  node.op = "Loop";
  node.version = kOpset;
  node.name = node_names_.Take(Printable(name), "Loop");
  node.inputs = {count < 0 ? kNone : Use(count), condition < 0 ? kNone : Use(condition)};
  for (const Handle handle : initial) node.inputs.push_back(Use(handle));
  for (const auto& [handle, id] : body->values) {
    if (Get(handle).scope != body && Get(handle).constant == nullptr) Use(handle);
  }
  std::vector<Handle> handles;
  for (size_t i = 0; i < initial.size(); ++i) {
    const ValueId id = PushValue(current(), value_names_.Take(node.name));
    node.outputs.push_back(id);
    const ValueId probe = probe_.Join(Get(initial[i]).probe, Get(results[i]).probe);
    handles.push_back(
        Register({current().value(id).name, scopes_.back(), id, probe, nullptr, true}));
    scopes_.back()->values[handles.back()] = id;
  }
  node.attributes["body"] = GraphPtr(body->graph);
  PushNode(current(), std::move(node));
  ++num_nodes_;
  return handles;
}

// ---- The end ----

void GraphBuilder::AddOutput(Handle handle, const std::string& name) {
  ValueId id = Use(handle);
  const bool taken = std::count(graph_.outputs.begin(), graph_.outputs.end(), id) > 0;
  // Bodies find what they capture by its name.
  if (graph_.value(id).producer == kNone || taken || Get(handle).is_captured)
    id = Use(AddPlain("Identity", name, {handle}));
  if (graph_.value(id).name != name) graph_.value(id).name = value_names_.Take(Printable(name));
  graph_.outputs.push_back(id);
}

int64_t GraphBuilder::LargeBytes() const {
  int64_t bytes = 0;
  for (const Known& known : known_) {
    if (known.constant == nullptr || !known.is_used) continue;
    const auto size = static_cast<int64_t>(known.constant->tensor.bytes().size());
    if (size >= kBlobTensorBytes) bytes += size;
  }
  return bytes;
}

absl::Status GraphBuilder::StoreWeights(WeightWriter& weights) {
  weights.set_total_bytes(LargeBytes());
  std::vector<std::pair<Constant*, std::shared_ptr<const Constant>>> stored;
  for (const Known& known : known_) {
    if (known.constant == nullptr || !known.is_used) continue;
    QUENCH_ASSIGN_OR_RETURN(std::shared_ptr<const Constant> constant,
                            weights.Add(known.name, known.constant->tensor));
    stored.emplace_back(known.constant.get(), std::move(constant));
  }
  QUENCH_RETURN_IF_ERROR(weights.Finish());
  for (const auto& [own, constant] : stored) *own = *constant;
  return absl::OkStatus();
}

}  // namespace quench::importer
