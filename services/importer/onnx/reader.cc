#include "services/importer/onnx/reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "common/base/near_names.h"
#include "common/base/status.h"
#include "common/ir/metadata.h"
#include "common/ir/verify.h"
#include "services/importer/graph/names.h"
#include "services/importer/onnx/inputs.h"

namespace quench::importer {
namespace {

using onnx::v1::AttributeProto;
using onnx::v1::FunctionProto;
using onnx::v1::GraphProto;
using onnx::v1::NodeProto;
using onnx::v1::TensorProto;

constexpr int kMaxCallDepth = 64;      // local functions that call one another
constexpr size_t kMaxNodes = 250'000;  // after inlining

// One naming scope: a graph, a body or the inside of a function call.
struct Scope {
  Graph* graph = nullptr;
  NameSet* value_names = nullptr;
  NameSet* node_names = nullptr;
  // Set for a body; a function sees nothing from outside. A body two levels in captures through the
  // one between, which then has the value too.
  Scope* enclosing = nullptr;
  std::unordered_map<std::string, ValueId> values;
  std::string prefix;                                     // of names made inside a function call
  std::map<std::string, std::string> result_names;        // function output -> name at the call
  std::map<std::string, const AttributeProto*> bindings;  // attributes of the call
  bool is_function = false;
  const Opsets* opsets = nullptr;
  int body_depth = 0;
  int call_depth = 0;
};

class ModelReader {
 public:
  ModelReader(const ModelFile& file, const Opsets& opsets, const ImportOptions& options,
              const TensorSources& sources, WeightWriter& weights, const StepContext& context)
      : model_(file.proto),
        opsets_(opsets),
        options_(options),
        sources_(sources),
        weights_(weights),
        context_(context),
        functions_(file.proto) {}

  absl::StatusOr<Graph> Read();

 private:
  // Phase 1: every tensor of the model into `constants_`.
  void LoadGraphTensors(const GraphProto& graph, const std::vector<const NodeProto*>& nodes,
                        const std::set<std::string>* used);
  void LoadNodeTensors(const NodeProto& node);
  void LoadFunctionTensors();
  void LoadTensor(const TensorProto& tensor);
  void LoadSparse(const onnx::v1::SparseTensorProto& tensor);

  // Phase 2: the graph.
  void AddInitializers(const GraphProto& graph, Scope& scope, const std::set<std::string>* used);
  void AddUnfrozen(const GraphProto& graph, Scope& scope, const std::set<std::string>& used);
  void AddNodes(const std::vector<const NodeProto*>& nodes, Scope& scope);
  void AddNode(const NodeProto& proto, int index, Scope& scope);
  void InlineCall(const NodeProto& call, const FunctionProto& function, Scope& scope,
                  const std::string& name);
  void Define(Scope& scope, const std::string& name, ValueId id);
  ValueId DefineOutput(Scope& scope, const std::string& name);
  ValueId Resolve(Scope& scope, const std::string& name);
  ValueId UseOf(Scope& scope, const std::string& name, const std::string& user);
  absl::StatusOr<Attribute> AttributeOf(const AttributeProto& proto, Scope& scope);
  absl::StatusOr<GraphPtr> BodyOf(const GraphProto& proto, Scope& scope);
  void AddOutputs(const std::vector<std::string>& names, Scope& scope);
  void Describe(Graph& graph) const;
  void WarnOfConstants(Graph& graph) const;
  const Constant* ConstantOf(const void* proto) const;

  const onnx::v1::ModelProto& model_;
  const Opsets& opsets_;
  const ImportOptions& options_;
  const TensorSources& sources_;
  WeightWriter& weights_;
  const StepContext& context_;
  FunctionTable functions_;
  StatusCollector problems_;
  std::unordered_map<const void*, std::shared_ptr<const Constant>> constants_;
  std::map<const FunctionProto*, Opsets> function_opsets_;
  std::set<const FunctionProto*> called_;
  std::vector<const FunctionProto*> unloaded_;
  size_t node_count_ = 0;
  bool broken_ = false;                  // nodes were left out
  std::set<std::string> unfrozen_;       // top-level initializers that are inputs
  std::vector<std::string> overridden_;  // constants that a later one of the same name replaces
};

// ---- Tensors ----

void ModelReader::LoadTensor(const TensorProto& tensor) {
  absl::StatusOr<std::shared_ptr<const Constant>> constant = AddTensor(tensor, sources_, weights_);
  if (!constant.ok()) return problems_.Add(constant.status());
  constants_[&tensor] = *std::move(constant);
}

void ModelReader::LoadSparse(const onnx::v1::SparseTensorProto& tensor) {
  absl::StatusOr<Tensor> dense = ReadSparseTensor(tensor, sources_);
  absl::StatusOr<std::shared_ptr<const Constant>> constant =
      dense.ok() ? weights_.Add(tensor.values().name(), *dense) : dense.status();
  if (!constant.ok()) {
    return problems_.Add(Annotate(
        constant.status(), fmt::format("sparse tensor `{}`", Printable(tensor.values().name()))));
  }
  constants_[&tensor] = *std::move(constant);
}

void ModelReader::LoadNodeTensors(const NodeProto& node) {
  if (const FunctionProto* function = functions_.Find(node);
      function != nullptr && called_.insert(function).second) {
    unloaded_.push_back(function);
  }
  for (const AttributeProto& attribute : node.attribute()) {
    if (attribute.has_t()) LoadTensor(attribute.t());
    if (attribute.has_sparse_tensor()) LoadSparse(attribute.sparse_tensor());
    if (!attribute.has_g()) continue;
    std::vector<const NodeProto*> nodes;
    for (const NodeProto& inner : attribute.g().node()) nodes.push_back(&inner);
    LoadGraphTensors(attribute.g(), nodes, nullptr);
  }
}

// Functions call one another to any depth, so they wait in a list rather than on the stack.
void ModelReader::LoadFunctionTensors() {
  while (!unloaded_.empty()) {
    const FunctionProto* function = unloaded_.back();
    unloaded_.pop_back();
    for (const AttributeProto& attribute : function->attribute_proto()) {
      if (attribute.has_t()) LoadTensor(attribute.t());
      if (attribute.has_sparse_tensor()) LoadSparse(attribute.sparse_tensor());
    }
    for (const NodeProto& node : function->node()) LoadNodeTensors(node);
  }
}

void ModelReader::LoadGraphTensors(const GraphProto& graph,
                                   const std::vector<const NodeProto*>& nodes,
                                   const std::set<std::string>* used) {
  for (const TensorProto& tensor : graph.initializer()) {
    if (used == nullptr || used->contains(tensor.name())) LoadTensor(tensor);
  }
  for (const auto& tensor : graph.sparse_initializer()) {
    if (used == nullptr || used->contains(tensor.values().name())) LoadSparse(tensor);
  }
  for (const NodeProto* node : nodes) LoadNodeTensors(*node);
}

const Constant* ModelReader::ConstantOf(const void* proto) const {
  const auto found = constants_.find(proto);
  return found == constants_.end() ? nullptr : found->second.get();
}

// ---- Names ----

void ModelReader::Define(Scope& scope, const std::string& name, ValueId id) {
  if (!scope.values.emplace(name, id).second) {
    problems_.Add(InvalidArgument("value `{}` is defined twice", Printable(scope.prefix + name)));
  }
}

ValueId ModelReader::DefineOutput(Scope& scope, const std::string& name) {
  if (name.empty()) return kNone;
  const auto renamed = scope.result_names.find(name);
  const std::string wanted =
      renamed != scope.result_names.end() ? renamed->second : Printable(scope.prefix + name);
  const ValueId id = PushValue(*scope.graph, scope.value_names->Take(wanted));
  Define(scope, name, id);
  return id;
}

// The value of that name as seen from `scope`, or kNone. A value of an enclosing graph is captured
// by name: it becomes a value of `scope`, and of each scope between.
ValueId ModelReader::Resolve(Scope& scope, const std::string& name) {
  if (const auto found = scope.values.find(name); found != scope.values.end()) return found->second;
  if (scope.enclosing == nullptr) return kNone;
  const ValueId outer = Resolve(*scope.enclosing, name);
  if (outer == kNone) return kNone;
  const std::string& outer_name = scope.enclosing->graph->value(outer).name;
  if (scope.graph != scope.enclosing->graph) {
    if (scope.value_names->Contains(outer_name)) {
      // Captured already under another name of the same value, or shadowed.
      const auto values = scope.graph->values.begin();
      const auto known = std::find_if(values, scope.graph->values.end(),
                                      [&](const Value& value) { return value.name == outer_name; });
      const bool captured =
          known->producer == kNone && known->constant == nullptr &&
          std::find(scope.graph->inputs.begin(), scope.graph->inputs.end(),
                    static_cast<ValueId>(known - values)) == scope.graph->inputs.end();
      if (captured) return static_cast<ValueId>(known - values);
      problems_.Add(
          Unsupported("a body uses the outer value `{}` and has one of the same name", outer_name));
      return kNone;
    }
    scope.value_names->Take(outer_name);
    const ValueId id =
        PushValue(*scope.graph, outer_name, scope.enclosing->graph->value(outer).type);
    scope.values.emplace(name, id);
    return id;
  }
  return outer;
}

ValueId ModelReader::UseOf(Scope& scope, const std::string& name, const std::string& user) {
  if (name.empty()) return kNone;
  const auto own = scope.values.find(name);
  if (own != scope.values.end())
    return own->second;  // may be kNone: an omitted input of a function
  const ValueId id = Resolve(scope, name);
  if (id == kNone && !broken_) {
    problems_.Add(
        InvalidArgument("{}: `{}` is neither an input, an initializer nor the output of a node",
                        user, Printable(scope.prefix + name)));
  }
  return id;
}

// ---- Nodes ----

void ModelReader::AddInitializers(const GraphProto& graph, Scope& scope,
                                  const std::set<std::string>* used) {
  const auto add = [&](const std::string& name, const void* proto) {
    if (name.empty()) return problems_.Add(InvalidArgument("an initializer has no name"));
    if (used != nullptr && !used->contains(name)) return;
    if (scope.enclosing == nullptr && unfrozen_.contains(name)) return;  // an input
    const auto constant = constants_.find(proto);
    if (constant == constants_.end()) return;  // reported already
    Define(scope, name,
           PushConstant(*scope.graph, scope.value_names->Take(Printable(name)), constant->second));
  };
  for (const TensorProto& tensor : graph.initializer()) add(tensor.name(), &tensor);
  for (const auto& tensor : graph.sparse_initializer()) add(tensor.values().name(), &tensor);
}

// Initializers that stay inputs of the model, after its own.
void ModelReader::AddUnfrozen(const GraphProto& graph, Scope& scope,
                              const std::set<std::string>& used) {
  if (options_.no_freeze.empty()) return;
  const bool all = options_.no_freeze.contains("all");
  std::vector<std::string> known;
  for (const TensorProto& tensor : graph.initializer()) {
    const Constant* constant = ConstantOf(&tensor);
    if (constant == nullptr || !used.contains(tensor.name())) continue;
    known.push_back(tensor.name());
    const Tensor& value = constant->tensor;
    const bool number = IsFloat(value.dtype()) ||
                        (DataTypeBits(value.dtype()) <= 8 && value.dtype() != DataType::kBool);
    const bool parameter = number && value.dtype() != DataType::kString && !value.dims().empty();
    if (!options_.no_freeze.contains(tensor.name()) && !(all && parameter)) continue;
    const std::vector<Dim> dims(value.dims().begin(), value.dims().end());
    const ValueId id = PushValue(*scope.graph, scope.value_names->Take(Printable(tensor.name())),
                                 Type::Tensor(value.dtype(), dims));
    scope.graph->inputs.push_back(id);
    scope.graph->metadata[kUnfrozenKey + scope.graph->value(id).name] = "true";
    Define(scope, tensor.name(), id);
    unfrozen_.insert(tensor.name());
  }
  for (const std::string& name : options_.no_freeze) {
    if (unfrozen_.contains(name) || (name == "all" && !unfrozen_.empty())) continue;
    if (name == "all") {
      problems_.Add(
          InvalidArgument("no initializer is left unfrozen: the model has no parameters"));
      continue;
    }
    problems_.Add(
        InvalidArgument("`{}` cannot stay unfrozen: the model has no initializer of that name; "
                        "similar ones are `{}`",
                        Printable(name), fmt::join(NearNames(name, known), "`, `")));
  }
}

void ModelReader::AddNodes(const std::vector<const NodeProto*>& nodes, Scope& scope) {
  absl::StatusOr<std::vector<const NodeProto*>> sorted =
      SortNodes(WithoutRepeatedConstants(nodes, overridden_));
  if (!sorted.ok()) {
    broken_ = true;  // what the cycle would have defined is missing everywhere else
    return problems_.Add(sorted.status());
  }
  for (size_t i = 0; i < sorted->size(); ++i) AddNode(*(*sorted)[i], static_cast<int>(i), scope);
}

void ModelReader::AddNode(const NodeProto& proto, int index, Scope& scope) {
  if (++node_count_ > kMaxNodes) {
    if (node_count_ == kMaxNodes + 1) {
      problems_.Add(
          absl::ResourceExhaustedError(fmt::format("the model has more than {} nodes", kMaxNodes)));
    }
    return;
  }
  const std::string wanted = Printable(proto.name().empty() ? "" : scope.prefix + proto.name());
  const std::string fallback =
      fmt::format("{}{}_{}", scope.prefix, Printable(proto.op_type()), index);
  const std::string name = scope.node_names->Take(wanted, fallback);
  if (const FunctionProto* function = functions_.Find(proto))
    return InlineCall(proto, *function, scope, name);

  Node node;
  node.name = name;
  node.op = Printable(proto.op_type());
  node.domain = Printable(NormalDomain(proto.domain()));
  node.origin = Printable(proto.name());
  const auto opset = scope.opsets->find(NormalDomain(proto.domain()));
  node.version = opset == scope.opsets->end()
                     ? 0
                     : static_cast<int>(std::clamp<int64_t>(opset->second, 0, INT32_MAX));
  if (opset == scope.opsets->end() && node.domain.empty()) {
    problems_.Add(
        InvalidArgument("node `{}`: the model imports no opset of domain `ai.onnx`", name));
  }
  const std::string user = fmt::format("node `{}`", name);
  for (const std::string& input : proto.input()) node.inputs.push_back(UseOf(scope, input, user));
  while (!node.inputs.empty() && node.inputs.back() == kNone) node.inputs.pop_back();
  for (const AttributeProto& attribute : proto.attribute()) {
    const AttributeProto* value = &attribute;
    if (attribute.name().empty()) {
      problems_.Add(InvalidArgument("{}: an attribute has no name", user));
      continue;
    }
    if (!attribute.ref_attr_name().empty()) {
      if (!scope.is_function) {
        problems_.Add(
            InvalidArgument("{}: attribute `{}` refers to an attribute of a function, this is none",
                            user, Printable(attribute.name())));
      }
      const auto bound = scope.bindings.find(attribute.ref_attr_name());
      if (bound == scope.bindings.end()) continue;  // the call leaves it to its default
      value = bound->second;
    }
    absl::StatusOr<Attribute> converted = AttributeOf(*value, scope);
    if (!converted.ok()) {
      problems_.Add(Annotate(converted.status(),
                             fmt::format("{}: attribute `{}`", user, Printable(attribute.name()))));
    } else if (!node.attributes.emplace(Printable(attribute.name()), *std::move(converted))
                    .second) {
      problems_.Add(
          InvalidArgument("{}: attribute `{}` is given twice", user, Printable(attribute.name())));
    }
  }
  for (const std::string& output : proto.output())
    node.outputs.push_back(DefineOutput(scope, output));
  while (!node.outputs.empty() && node.outputs.back() == kNone) node.outputs.pop_back();
  PushNode(*scope.graph, std::move(node));
}

void ModelReader::InlineCall(const NodeProto& call, const FunctionProto& function, Scope& scope,
                             const std::string& name) {
  const std::string user = fmt::format("node `{}`", name);
  if (scope.call_depth >= kMaxCallDepth) {
    return problems_.Add(
        InvalidArgument("{}: functions call one another more than {} deep", user, kMaxCallDepth));
  }
  if (call.input_size() > function.input_size() || call.output_size() > function.output_size()) {
    return problems_.Add(
        InvalidArgument("{}: has {} inputs and {} outputs, function `{}` has {} and {}", user,
                        call.input_size(), call.output_size(), Printable(function.name()),
                        function.input_size(), function.output_size()));
  }
  Scope inside;
  inside.graph = scope.graph;
  inside.value_names = scope.value_names;
  inside.node_names = scope.node_names;
  inside.prefix = name + "/";
  inside.is_function = true;
  inside.body_depth = scope.body_depth;
  inside.call_depth = scope.call_depth + 1;
  auto [opsets, fresh] = function_opsets_.try_emplace(&function, opsets_);
  if (fresh) {
    for (const auto& entry : function.opset_import())
      opsets->second[NormalDomain(entry.domain())] = entry.version();
  }
  inside.opsets = &opsets->second;
  for (int i = 0; i < function.input_size(); ++i) {
    Define(inside, function.input(i),
           i < call.input_size() ? UseOf(scope, call.input(i), user) : kNone);
  }
  for (const AttributeProto& attribute : function.attribute_proto())
    inside.bindings[attribute.name()] = &attribute;
  for (const AttributeProto& attribute : call.attribute()) {
    const AttributeProto* value = &attribute;
    if (!attribute.ref_attr_name().empty()) {
      const auto bound = scope.bindings.find(attribute.ref_attr_name());
      if (bound == scope.bindings.end()) continue;
      value = bound->second;
    }
    inside.bindings[attribute.name()] = value;
  }
  for (int i = 0; i < call.output_size(); ++i) {
    if (!call.output(i).empty()) {
      inside.result_names.emplace(function.output(i), Printable(scope.prefix + call.output(i)));
    }
  }
  if (!scope.result_names.empty()) {  // a result of the caller's own call keeps that call's name
    for (int i = 0; i < call.output_size(); ++i) {
      const auto outer = scope.result_names.find(call.output(i));
      if (outer != scope.result_names.end())
        inside.result_names[function.output(i)] = outer->second;
    }
  }
  std::vector<const NodeProto*> nodes;
  for (const NodeProto& node : function.node()) nodes.push_back(&node);
  AddNodes(nodes, inside);
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty()) continue;
    Define(scope, call.output(i), UseOf(inside, function.output(i), user));
  }
}

// ---- Attributes and bodies ----

// Writers of IR version 1 left the type out.
AttributeProto::AttributeType TypeOf(const AttributeProto& proto) {
  if (proto.type() != AttributeProto::UNDEFINED) return proto.type();
  if (proto.has_f()) return AttributeProto::FLOAT;
  if (proto.has_i()) return AttributeProto::INT;
  if (proto.has_s()) return AttributeProto::STRING;
  if (proto.has_t()) return AttributeProto::TENSOR;
  if (proto.has_g()) return AttributeProto::GRAPH;
  if (proto.floats_size() > 0) return AttributeProto::FLOATS;
  if (proto.strings_size() > 0) return AttributeProto::STRINGS;
  return proto.ints_size() > 0 ? AttributeProto::INTS : AttributeProto::UNDEFINED;
}

absl::StatusOr<Attribute> ModelReader::AttributeOf(const AttributeProto& proto, Scope& scope) {
  const auto tensor = [&](const void* key) -> absl::StatusOr<Attribute> {
    const Constant* constant = ConstantOf(key);
    if (constant == nullptr) return InvalidArgument("its tensor could not be read");
    return Attribute(constant->tensor);
  };
  switch (TypeOf(proto)) {
    case AttributeProto::FLOAT:
      return Attribute(static_cast<double>(proto.f()));
    case AttributeProto::INT:
      return Attribute(static_cast<int64_t>(proto.i()));
    case AttributeProto::STRING:
      return Attribute(std::string(proto.s()));
    case AttributeProto::TENSOR:
      return tensor(&proto.t());
    case AttributeProto::SPARSE_TENSOR:
      return tensor(&proto.sparse_tensor());
    case AttributeProto::GRAPH: {
      QUENCH_ASSIGN_OR_RETURN(GraphPtr body, BodyOf(proto.g(), scope));
      return Attribute(std::move(body));
    }
    case AttributeProto::FLOATS:
      return Attribute(std::vector<double>(proto.floats().begin(), proto.floats().end()));
    case AttributeProto::INTS:
      return Attribute(std::vector<int64_t>(proto.ints().begin(), proto.ints().end()));
    case AttributeProto::STRINGS:
      return Attribute(std::vector<std::string>(proto.strings().begin(), proto.strings().end()));
    case AttributeProto::TYPE_PROTO: {
      QUENCH_ASSIGN_OR_RETURN(Type type, StaticTypeOf(proto.tp()));
      return Attribute(std::move(type));
    }
    default:
      return Unsupported("is of type {}", AttributeProto::AttributeType_Name(proto.type()));
  }
}

absl::StatusOr<GraphPtr> ModelReader::BodyOf(const GraphProto& proto, Scope& scope) {
  if (scope.body_depth >= kMaxModelNesting) {
    return InvalidArgument("bodies are nested more than {} deep", kMaxModelNesting);
  }
  auto body = std::make_shared<Graph>();
  body->name = Printable(proto.name());
  body->stage = Stage::kImported;
  body->symbols = scope.graph->symbols;
  NameSet values, nodes;
  Scope inside;
  inside.graph = body.get();
  inside.value_names = &values;
  inside.node_names = &nodes;
  inside.enclosing = &scope;
  inside.bindings = scope.bindings;
  inside.is_function = scope.is_function;
  inside.opsets = scope.opsets;
  inside.body_depth = scope.body_depth + 1;
  inside.call_depth = scope.call_depth;
  std::set<std::string> initialised;
  for (const TensorProto& tensor : proto.initializer()) initialised.insert(tensor.name());
  for (const auto& input : proto.input()) {
    if (initialised.contains(input.name())) continue;
    absl::StatusOr<Type> type = StaticTypeOf(input.type());
    if (!type.ok())
      return Annotate(type.status(), fmt::format("input `{}`", Printable(input.name())));
    const ValueId id = PushValue(*body, values.Take(Printable(input.name())), *std::move(type));
    body->inputs.push_back(id);
    Define(inside, input.name(), id);
  }
  AddInitializers(proto, inside, nullptr);
  std::vector<const NodeProto*> list;
  for (const NodeProto& node : proto.node()) list.push_back(&node);
  AddNodes(list, inside);
  std::vector<std::string> outputs;
  for (const auto& output : proto.output()) outputs.push_back(output.name());
  AddOutputs(outputs, inside);
  return GraphPtr(std::move(body));
}

void ModelReader::AddOutputs(const std::vector<std::string>& names, Scope& scope) {
  for (const std::string& name : names) {
    if (name.empty()) {
      problems_.Add(InvalidArgument("an output of graph `{}` has no name", scope.graph->name));
      continue;
    }
    ValueId id = UseOf(scope, name, fmt::format("output `{}`", Printable(name)));
    if (id == kNone) continue;
    // A function that hands an input through leaves its caller's output without a value of that
    // name.
    if (scope.enclosing == nullptr && scope.graph->value(id).name != Printable(name) &&
        !scope.value_names->Contains(Printable(name))) {
      Node identity;
      identity.name = scope.node_names->Take("", "Identity_" + Printable(name));
      identity.op = "Identity";
      const auto opset = scope.opsets->find("");
      identity.version =
          static_cast<int>(opset == scope.opsets->end() ? kNewestOpset : opset->second);
      identity.inputs = {id};
      identity.outputs = {PushValue(*scope.graph, scope.value_names->Take(Printable(name)))};
      id = identity.outputs[0];
      PushNode(*scope.graph, std::move(identity));
    }
    scope.graph->outputs.push_back(id);
  }
}

// ---- The model ----

void ModelReader::Describe(Graph& graph) const {
  graph.metadata["producer"] = Printable(model_.producer_name());
  if (!model_.producer_version().empty())
    graph.metadata["producer_version"] = Printable(model_.producer_version());
  graph.metadata["ir_version"] = std::to_string(model_.ir_version());
  for (const auto& [domain, version] : opsets_) {
    graph.metadata["opset." + Printable(domain.empty() ? "ai.onnx" : domain)] =
        std::to_string(version);
  }
  for (const auto& entry : model_.metadata_props()) {
    graph.metadata["model." + Printable(entry.key())] = Printable(entry.value());
  }
}

void ModelReader::WarnOfConstants(Graph& graph) const {
  if (overridden_.empty()) return;
  constexpr size_t kListed = 10;
  std::string list;
  for (size_t i = 0; i < std::min(overridden_.size(), kListed); ++i)
    list += fmt::format("{}`{}`", i == 0 ? "" : ", ", Printable(overridden_[i]));
  if (overridden_.size() > kListed)
    list += fmt::format(" and {} more", overridden_.size() - kListed);
  graph.metadata["warning.repeated constants"] = fmt::format(
      "several Constant nodes of one graph give {}, with different contents; the last of them "
      "counts",
      list);
}

absl::StatusOr<Graph> ModelReader::Read() {
  const GraphProto& proto = model_.graph();
  QUENCH_ASSIGN_OR_RETURN(const std::vector<const NodeProto*> nodes, NeededNodes(proto, options_));
  std::vector<std::string> outputs = options_.outputs;
  if (outputs.empty()) {
    for (const auto& output : proto.output()) outputs.push_back(output.name());
  }
  if (outputs.empty()) return InvalidArgument("the graph has no outputs");
  std::set<std::string> used(outputs.begin(), outputs.end());
  for (const NodeProto* node : nodes) used.merge(UsedNames(*node));

  Graph graph;
  graph.name = Printable(proto.name());
  graph.stage = Stage::kImported;
  Describe(graph);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<GraphInput> inputs,
                          ReadInputs(proto, options_, used, *graph.symbols));

  LoadGraphTensors(proto, nodes, &used);
  LoadFunctionTensors();
  QUENCH_RETURN_IF_ERROR(context_.Check());
  std::map<std::string, std::shared_ptr<const Constant>> frozen;
  for (const auto& [name, tensor] : options_.freeze_params) {
    QUENCH_ASSIGN_OR_RETURN(frozen[name], weights_.Add(name, tensor));
  }
  QUENCH_RETURN_IF_ERROR(weights_.Finish());

  NameSet value_names, node_names;
  Scope scope;
  scope.graph = &graph;
  scope.value_names = &value_names;
  scope.node_names = &node_names;
  scope.opsets = &opsets_;
  for (const GraphInput& input : inputs) {
    Define(scope, input.name, PushInput(graph, value_names, node_names, input));
  }
  AddUnfrozen(proto, scope, used);
  for (const auto& [name, constant] : frozen) {
    Define(scope, name, PushConstant(graph, value_names.Take(Printable(name)), constant));
  }
  AddInitializers(proto, scope, &used);
  AddNodes(nodes, scope);
  AddOutputs(outputs, scope);
  QUENCH_RETURN_IF_ERROR(problems_.Finish());
  WarnOfConstants(graph);
  return graph;
}

}  // namespace

absl::StatusOr<std::vector<const NodeProto*>> NeededNodes(const GraphProto& graph,
                                                          const ImportOptions& options) {
  std::vector<const NodeProto*> all;
  for (const NodeProto& node : graph.node()) all.push_back(&node);
  if (options.outputs.empty()) return all;
  std::unordered_map<std::string, std::vector<size_t>> producers;  // more than one: constants
  for (size_t i = 0; i < all.size(); ++i) {
    for (const std::string& output : all[i]->output()) producers[output].push_back(i);
  }
  std::set<std::string> known;
  for (const auto& input : graph.input()) known.insert(input.name());
  for (const auto& tensor : graph.initializer()) known.insert(tensor.name());
  StatusCollector problems;
  std::vector<bool> needed(all.size(), false);
  std::vector<std::string> pending = options.outputs;
  for (const std::string& name : options.outputs) {
    if (name.empty() || (!producers.contains(name) && !known.contains(name))) {
      problems.Add(
          InvalidArgument("the model is cut at `{}`, which is not a value of it", Printable(name)));
    }
  }
  while (!pending.empty()) {
    const auto found = producers.find(pending.back());
    pending.pop_back();
    if (found == producers.end()) continue;
    for (const size_t i : found->second) {
      if (needed[i]) continue;
      needed[i] = true;
      for (const std::string& name : UsedNames(*all[i])) pending.push_back(name);
    }
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  std::vector<const NodeProto*> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    if (needed[i]) kept.push_back(all[i]);
  }
  return kept;
}

absl::StatusOr<Graph> ReadGraph(const ModelFile& file, const Opsets& opsets,
                                const ImportOptions& options, const TensorSources& sources,
                                WeightWriter& weights, const StepContext& context) {
  return ModelReader(file, opsets, options, sources, weights, context).Read();
}

}  // namespace quench::importer
