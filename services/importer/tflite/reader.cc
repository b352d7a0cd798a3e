#include "services/importer/tflite/reader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "common/base/status.h"
#include "common/ir/metadata.h"
#include "services/importer/graph/interface.h"
#include "services/importer/graph/names.h"
#include "services/importer/tflite/attributes.h"
#include "services/importer/tflite/entry.h"

namespace quench::importer {
namespace {

constexpr int kOpset = 21;  // of nodes in ONNX's vocabulary

// A state before the first run, if it is not 0: one number; others have no text.
void DescribeInitial(const std::string& input, const Tensor& initial,
                     std::map<std::string, std::string>& metadata) {
  const auto number = [&](int64_t i) { return initial.FloatAt(i); };
  bool uniform = true;
  for (int64_t i = 1; i < initial.size() && uniform; ++i) uniform = number(i) == number(0);
  if (!uniform) {
    metadata["warning.state " + input] = fmt::format(
        "state `{}` begins with different numbers in its elements, which the module does not keep",
        input);
  } else if (initial.size() > 0 && number(0) != 0) {
    metadata[kStateInitialKey + input] = fmt::format("{}", number(0));
  }
}

bool IsComplex(const tflite::Tensor& tensor) {
  return tensor.type() == tflite::TensorType_COMPLEX64 ||
         tensor.type() == tflite::TensorType_COMPLEX128;
}

bool TakesComplex(const Node& node) {
  return node.op == "REAL" || node.op == "IMAG" || node.op == "COMPLEX_ABS";
}

// A subgraph on its way into a graph.
struct Scope {
  Graph* graph = nullptr;
  NameSet* value_names = nullptr;
  NameSet* node_names = nullptr;
  uint32_t number = 0;
  const tflite::SubGraph* subgraph = nullptr;
  std::vector<ValueId> values;           // of tensors, kNone while undefined
  std::map<int32_t, std::string> names;  // of tensors, where they are not the tensors' own
  std::string prefix;
  bool is_main = false;
};

class TfliteReader {
 public:
  TfliteReader(const TfliteFile& file, const ImportOptions& options, WeightWriter& weights,
               const StepContext& context)
      : file_(file), model_(*file.model), options_(options), weights_(weights), context_(context) {}

  absl::StatusOr<Graph> Read();

 private:
  struct Variable {
    bool assigned = false;  // by the subgraph that is read
    std::shared_ptr<const Constant> initial;
    ValueId current = kNone;
    ValueId input = kNone;
  };
  struct State {
    std::string input;
    ValueId next = kNone;
  };

  Scope ScopeOf(int64_t number) const;
  void LoadConstants(uint32_t number, const std::vector<bool>* needed);
  void ReadInputs(const Entry& entry, Scope& scope);
  void ReadOperators(const std::vector<bool>* needed, Scope& scope);
  void ReadOperator(const tflite::Operator& op, uint32_t index, Scope& scope);
  bool ReadStructure(const std::string& kind, const tflite::Operator& op, const std::string& name,
                     Scope& scope);
  void ReadIf(const tflite::Operator& op, const std::string& name, Scope& scope);
  void ReadWhile(const tflite::Operator& op, const std::string& name, Scope& scope);
  GraphPtr BranchOf(int64_t number, const std::vector<ValueId>& inputs, Scope& scope);
  std::vector<ValueId> Inline(int64_t number, const std::vector<ValueId>& inputs,
                              const std::string& prefix, Scope& scope);
  void ReadInitialValues(uint32_t number);
  ValueId ReadVariable(const std::string& name, int32_t tensor, Scope& scope);
  std::string HandleOf(const tflite::Operator& op) const;

  ValueId UseOf(Scope& scope, int32_t tensor, const std::string& user, bool takes_complex = false);
  std::vector<ValueId> UsesOf(const tflite::Operator& op, size_t first, const std::string& user,
                              Scope& scope);
  void Define(Scope& scope, int32_t tensor, ValueId id, const std::string& user);
  ValueId Fresh(Scope& scope, ValueId id, std::set<ValueId>& taken);
  ValueId AddNode(Scope& scope, const std::string& op, const std::string& name,
                  std::vector<ValueId> inputs, std::map<std::string, Attribute> attributes = {});
  std::string NameOf(const Scope& scope, int32_t tensor) const;
  Type TypeOf(const tflite::Tensor& tensor) const;
  void AddOutputs(const Entry& entry, Scope& scope);
  void Describe(const Entry& entry, Graph& graph) const;

  const tflite::Tensor& TensorOf(const Scope& scope, int32_t tensor) const {
    return *scope.subgraph->tensors()->Get(static_cast<uint32_t>(tensor));
  }

  const TfliteFile& file_;
  const tflite::Model& model_;
  const ImportOptions& options_;
  WeightWriter& weights_;
  const StepContext& context_;
  StatusCollector problems_;
  std::map<std::pair<uint32_t, int32_t>, std::shared_ptr<const Constant>> constants_;
  std::map<std::tuple<uint32_t, int, std::vector<int64_t>>, std::shared_ptr<const Constant>>
      loaded_;
  std::set<uint32_t> visited_;
  std::map<int32_t, std::string> handles_;  // of tensors of the subgraph that is read
  std::map<std::string, Variable> variables_;
  std::vector<State> states_;
  std::map<int32_t, size_t> state_of_;  // variable tensor -> index in states_
};

// ---- Constants ----

// Every constant that operators of the subgraph read, and of those that they run.
void TfliteReader::LoadConstants(uint32_t number, const std::vector<bool>* needed) {
  std::vector<uint32_t> pending = {number};
  while (!pending.empty()) {
    const uint32_t current = pending.back();
    pending.pop_back();
    if (!visited_.insert(current).second) continue;
    const tflite::SubGraph& subgraph = *model_.subgraphs()->Get(current);
    std::set<int32_t> used;
    for (const int32_t tensor : Indices(subgraph.outputs())) used.insert(tensor);
    for (uint32_t i = 0; i < SizeOf(subgraph.operators()); ++i) {
      if (current == number && needed != nullptr && !(*needed)[i]) continue;
      const tflite::Operator& op = *subgraph.operators()->Get(i);
      for (const int32_t tensor : Indices(op.inputs())) used.insert(tensor);
      for (const int64_t called : SubgraphsOf(op)) pending.push_back(static_cast<uint32_t>(called));
    }
    for (const int32_t index : used) {
      if (index < 0) continue;
      const tflite::Tensor& tensor = *subgraph.tensors()->Get(static_cast<uint32_t>(index));
      if (!IsConstant(model_, tensor)) continue;
      auto& constant = constants_[{current, index}];
      auto& shared =
          loaded_[{tensor.buffer(), static_cast<int>(tensor.type()), DeclaredDims(tensor)}];
      if (shared == nullptr) {
        absl::StatusOr<std::shared_ptr<const Constant>> added =
            AddConstant(file_, tensor, weights_);
        if (!added.ok()) {
          problems_.Add(
              Annotate(added.status(), fmt::format("tensor `{}`", TensorName(subgraph, index))));
          continue;
        }
        shared = *std::move(added);
      }
      constant = shared;
    }
  }
}

// ---- Values ----

std::string TfliteReader::NameOf(const Scope& scope, int32_t tensor) const {
  const auto named = scope.names.find(tensor);
  if (named != scope.names.end()) return named->second;
  return scope.prefix + TensorName(*scope.subgraph, tensor);
}

// The element type, and the dims where all of them are numbers.
Type TfliteReader::TypeOf(const tflite::Tensor& tensor) const {
  Type type;
  const absl::StatusOr<DataType> dtype = DataTypeOf(tensor.type());
  if (dtype.ok()) type.dtype = *dtype;
  const std::vector<int64_t> dims = DeclaredDims(tensor);
  type.ranked = dims.size() <= kMaxRank &&
                std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0; });
  if (type.ranked) type.dims.assign(dims.begin(), dims.end());
  return type;
}

ValueId TfliteReader::UseOf(Scope& scope, int32_t tensor, const std::string& user,
                            bool takes_complex) {
  if (tensor < 0) return kNone;
  if (!takes_complex && IsComplex(TensorOf(scope, tensor))) {
    problems_.Add(Unsupported("{}: `{}` is complex, of which only parts and magnitude are read",
                              user, NameOf(scope, tensor)));
    return kNone;
  }
  ValueId& value = scope.values[static_cast<size_t>(tensor)];
  if (value != kNone) return value;
  const tflite::Tensor& given = TensorOf(scope, tensor);
  const std::string name = NameOf(scope, tensor);
  if (const auto constant = constants_.find({scope.number, tensor}); constant != constants_.end()) {
    if (constant->second == nullptr) return kNone;  // reported already
    return value = PushConstant(*scope.graph, scope.value_names->Take(name), constant->second);
  }
  if (given.is_variable()) {
    if (!scope.is_main) {
      problems_.Add(Unsupported("{}: the variable `{}` is inside a subgraph", user, name));
      return kNone;
    }
    value = PushValue(*scope.graph, scope.value_names->Take(name), TypeOf(given));
    scope.graph->inputs.push_back(value);
    state_of_[tensor] = states_.size();
    states_.push_back({scope.graph->value(value).name, kNone});
    return value;
  }
  if (scope.is_main && handles_.contains(tensor)) {
    problems_.Add(
        Unsupported("{}: the resource `{}` is used by another operator than reading and "
                    "assigning it",
                    user, name));
    return kNone;
  }
  problems_.Add(InvalidArgument(
      "{}: tensor `{}` has no contents and no operator before it gives it any", user, name));
  return kNone;
}

std::vector<ValueId> TfliteReader::UsesOf(const tflite::Operator& op, size_t first,
                                          const std::string& user, Scope& scope) {
  std::vector<ValueId> ids;
  const std::vector<int32_t> tensors = Indices(op.inputs());
  for (size_t i = first; i < tensors.size(); ++i) ids.push_back(UseOf(scope, tensors[i], user));
  return ids;
}

void TfliteReader::Define(Scope& scope, int32_t tensor, ValueId id, const std::string& user) {
  if (tensor < 0) return;
  ValueId& value = scope.values[static_cast<size_t>(tensor)];
  if (value != kNone || constants_.contains({scope.number, tensor})) {
    problems_.Add(
        InvalidArgument("{}: tensor `{}` has its value already", user, NameOf(scope, tensor)));
    return;
  }
  value = id;
}

ValueId TfliteReader::AddNode(Scope& scope, const std::string& op, const std::string& name,
                              std::vector<ValueId> inputs,
                              std::map<std::string, Attribute> attributes) {
  Node node;
  node.name = scope.node_names->Take(name);
  node.op = op;
  node.version = kOpset;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  const ValueId output = PushValue(*scope.graph, scope.value_names->Take(name));
  node.outputs = {output};
  PushNode(*scope.graph, std::move(node));
  return output;
}

// `id`, or a copy where it cannot be an output of its graph once more.
ValueId TfliteReader::Fresh(Scope& scope, ValueId id, std::set<ValueId>& taken) {
  if (id == kNone) return id;
  if (scope.graph->value(id).producer != kNone && taken.insert(id).second) return id;
  return AddNode(scope, "Identity", scope.graph->value(id).name + "/copy", {id});
}

// ---- Operators ----

void TfliteReader::ReadOperators(const std::vector<bool>* needed, Scope& scope) {
  for (uint32_t i = 0; i < SizeOf(scope.subgraph->operators()); ++i) {
    if (needed != nullptr && !(*needed)[i]) continue;
    if (!context_.Check().ok()) return;
    ReadOperator(*scope.subgraph->operators()->Get(i), i, scope);
  }
}

void TfliteReader::ReadOperator(const tflite::Operator& op, uint32_t index, Scope& scope) {
  Node node;
  node.op = OperatorName(model_, op);
  const std::vector<int32_t> outputs = Indices(op.outputs());
  const std::string fallback = fmt::format("{}{}_{}", scope.prefix, node.op, index);
  const std::string wanted =
      outputs.empty() || outputs[0] < 0 ? fallback : NameOf(scope, outputs[0]);
  if (IsStructural(node.op) && ReadStructure(node.op, op, wanted, scope)) return;

  node.domain = OperatorDomain(model_, op);
  node.version = OperatorVersion(model_, op);
  node.origin = wanted;
  node.name = scope.node_names->Take(wanted, fallback);
  const std::string user = fmt::format("operator `{}` ({})", node.name, node.op);
  if (const absl::Status status = AddOptions(op, node); !status.ok())
    problems_.Add(Annotate(status, user));
  const int64_t activation = node.Int("fused_activation_function", 0);
  if (activation < 0 || activation > tflite::ActivationFunctionType_MAX)
    problems_.Add(InvalidArgument("{}: its activation is {}, 0 to {} are known", user, activation,
                                  static_cast<int>(tflite::ActivationFunctionType_MAX)));
  const auto add_scale = [&](const char* side, size_t i, int32_t tensor) {
    if (tensor < 0) return;
    absl::StatusOr<TensorScale> scale = ScaleOf(TensorOf(scope, tensor));
    if (!scale.ok()) {
      problems_.Add(
          Annotate(scale.status(), fmt::format("{}: tensor `{}`", user, NameOf(scope, tensor))));
      return;
    }
    AddScale(side, i, *scale, node);
  };
  const std::vector<int32_t> inputs = Indices(op.inputs());
  std::vector<int64_t> states;
  for (size_t i = 0; i < inputs.size(); ++i) {
    node.inputs.push_back(UseOf(scope, inputs[i], user, TakesComplex(node)));
    add_scale("input", i, inputs[i]);
    if (inputs[i] >= 0 && TensorOf(scope, inputs[i]).is_variable())
      states.push_back(static_cast<int64_t>(i));
  }
  while (!node.inputs.empty() && node.inputs.back() == kNone) node.inputs.pop_back();
  const std::vector<int32_t> intermediates = Indices(op.intermediates());
  for (size_t i = 0; i < intermediates.size(); ++i) {
    if (intermediates[i] < 0 ||
        static_cast<uint32_t>(intermediates[i]) >= SizeOf(scope.subgraph->tensors()))
      continue;
    add_scale("intermediate", i, intermediates[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    ValueId id = kNone;
    if (outputs[i] >= 0) {
      id = PushValue(*scope.graph, scope.value_names->Take(NameOf(scope, outputs[i])));
      const DataType dtype = TypeOf(TensorOf(scope, outputs[i])).dtype;
      if (DataTypeBits(dtype) < 8)
        problems_.Add(Unsupported("{}: its result is {}, which only constants may be", user,
                                  DataTypeName(dtype)));
      scope.graph->value(id).type.dtype = dtype;
      Define(scope, outputs[i], id, user);
      add_scale("output", i, outputs[i]);
    }
    node.outputs.push_back(id);
  }
  // The operator's variables after it are additional outputs behind its own.
  if (!states.empty() && scope.is_main) {
    node.attributes["states"] = states;
    for (const int64_t input : states) {
      const int32_t tensor = inputs[static_cast<size_t>(input)];
      const ValueId next =
          PushValue(*scope.graph, scope.value_names->Take(NameOf(scope, tensor) + "/next"));
      scope.graph->value(next).type.dtype = TypeOf(TensorOf(scope, tensor)).dtype;
      add_scale("output", node.outputs.size(), tensor);
      node.outputs.push_back(next);
      scope.values[static_cast<size_t>(tensor)] = next;
      if (const auto state = state_of_.find(tensor); state != state_of_.end())
        states_[state->second].next = next;
    }
  }
  PushNode(*scope.graph, std::move(node));
}

// ---- Subgraphs ----

Scope TfliteReader::ScopeOf(int64_t number) const {
  Scope scope;
  scope.number = static_cast<uint32_t>(number);
  scope.subgraph = model_.subgraphs()->Get(scope.number);
  scope.values.assign(SizeOf(scope.subgraph->tensors()), kNone);
  return scope;
}

// The outputs of a subgraph whose operators join those of `scope`.
std::vector<ValueId> TfliteReader::Inline(int64_t number, const std::vector<ValueId>& inputs,
                                          const std::string& prefix, Scope& scope) {
  Scope inside = ScopeOf(number);
  inside.graph = scope.graph;
  inside.value_names = scope.value_names;
  inside.node_names = scope.node_names;
  inside.prefix = prefix;
  const std::vector<int32_t> wanted = Indices(inside.subgraph->inputs());
  if (wanted.size() != inputs.size()) {
    problems_.Add(InvalidArgument("`{}`: subgraph {} has {} inputs, {} are given", prefix, number,
                                  wanted.size(), inputs.size()));
    return {};
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    inside.values[static_cast<size_t>(wanted[i])] = inputs[i];
  ReadOperators(nullptr, inside);
  std::vector<ValueId> outputs;
  for (const int32_t tensor : Indices(inside.subgraph->outputs()))
    outputs.push_back(UseOf(inside, tensor, fmt::format("output of subgraph {}", number)));
  return outputs;
}

// A branch of If: a body that has the values of `inputs` from outside, by name.
GraphPtr TfliteReader::BranchOf(int64_t number, const std::vector<ValueId>& inputs, Scope& scope) {
  auto body = std::make_shared<Graph>();
  body->name = fmt::format("subgraph_{}", number);
  body->stage = Stage::kImported;
  body->symbols = scope.graph->symbols;
  NameSet values, nodes;
  Scope inside;
  inside.graph = body.get();
  inside.value_names = &values;
  inside.node_names = &nodes;
  std::map<ValueId, ValueId> captured;
  std::vector<ValueId> inner;
  for (const ValueId outer : inputs) {
    const auto [known, fresh] = captured.emplace(outer, kNone);
    if (fresh && outer != kNone) {
      const Value& value = scope.graph->value(outer);
      values.Take(value.name);
      known->second = PushValue(*body, value.name, value.type);
    }
    inner.push_back(known->second);
  }
  std::set<ValueId> taken;
  for (const ValueId output : Inline(number, inner, "", inside))
    body->outputs.push_back(Fresh(inside, output, taken));
  return body;
}

void TfliteReader::ReadIf(const tflite::Operator& op, const std::string& name, Scope& scope) {
  const std::string user = fmt::format("operator `{}` (IF)", name);
  const std::vector<int64_t> branches = SubgraphsOf(op);
  const std::vector<ValueId> inputs = UsesOf(op, 1, user, scope);
  Node node;
  node.name = scope.node_names->Take(name);
  node.op = "If";
  node.version = kOpset;
  node.origin = name;
  node.inputs = {UseOf(scope, SizeOf(op.inputs()) == 0 ? -1 : op.inputs()->Get(0), user)};
  node.attributes["then_branch"] = BranchOf(branches[0], inputs, scope);
  node.attributes["else_branch"] = BranchOf(branches[1], inputs, scope);
  for (const int32_t tensor : Indices(op.outputs())) {
    const ValueId id =
        PushValue(*scope.graph, scope.value_names->Take(tensor < 0 ? name : NameOf(scope, tensor)));
    node.outputs.push_back(id);
    Define(scope, tensor, id, user);
  }
  PushNode(*scope.graph, std::move(node));
}

// WHILE has a condition that is computed before each iteration; the one of Loop comes out of the
// iteration before, and for the first one from outside.
void TfliteReader::ReadWhile(const tflite::Operator& op, const std::string& name, Scope& scope) {
  const std::string user = fmt::format("operator `{}` (WHILE)", name);
  const std::vector<int64_t> parts = SubgraphsOf(op);
  const std::vector<ValueId> inputs = UsesOf(op, 0, user, scope);
  const auto condition = [&](const std::vector<ValueId>& states, const std::string& prefix,
                             Scope& into) {
    const std::vector<ValueId> outputs = Inline(parts[0], states, prefix, into);
    if (outputs.size() != 1 || outputs[0] == kNone) {
      problems_.Add(
          InvalidArgument("{}: its condition has {} outputs, expected one", user, outputs.size()));
      return kNone;
    }
    return AddNode(into, "Squeeze", prefix + "condition", {outputs[0]});
  };
  const ValueId first = condition(inputs, name + "/first/", scope);

  auto body = std::make_shared<Graph>();
  body->name = fmt::format("subgraph_{}", parts[1]);
  body->stage = Stage::kImported;
  body->symbols = scope.graph->symbols;
  NameSet values, nodes;
  Scope inside;
  inside.graph = body.get();
  inside.value_names = &values;
  inside.node_names = &nodes;
  const auto add_input = [&](const std::string& wanted, Type type) {
    body->inputs.push_back(PushValue(*body, values.Take(wanted), std::move(type)));
    return body->inputs.back();
  };
  add_input("iteration", Type::Tensor(DataType::kI64, {}));
  add_input("condition", Type::Tensor(DataType::kBool, {}));
  const tflite::SubGraph& subgraph = *model_.subgraphs()->Get(static_cast<uint32_t>(parts[1]));
  const std::vector<int32_t> wanted = Indices(subgraph.inputs());
  std::vector<ValueId> states;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Type type;
    if (i < wanted.size())
      type = TypeOf(*subgraph.tensors()->Get(static_cast<uint32_t>(wanted[i])));
    states.push_back(add_input(fmt::format("state_{}", i), std::move(type)));
  }
  const std::vector<ValueId> next = Inline(parts[1], states, "", inside);
  std::set<ValueId> taken;
  body->outputs = {condition(next, "next/", inside)};
  for (const ValueId id : next) body->outputs.push_back(Fresh(inside, id, taken));

  Node node;
  node.name = scope.node_names->Take(name);
  node.op = "Loop";
  node.version = kOpset;
  node.origin = name;
  node.inputs = {kNone, first};
  node.inputs.insert(node.inputs.end(), inputs.begin(), inputs.end());
  node.attributes["body"] = GraphPtr(std::move(body));
  for (const int32_t tensor : Indices(op.outputs())) {
    const ValueId id =
        PushValue(*scope.graph, scope.value_names->Take(tensor < 0 ? name : NameOf(scope, tensor)));
    node.outputs.push_back(id);
    Define(scope, tensor, id, user);
  }
  PushNode(*scope.graph, std::move(node));
}

// ---- Variables ----

std::string TfliteReader::HandleOf(const tflite::Operator& op) const {
  const auto* options = op.builtin_options_as_VarHandleOptions();
  if (options == nullptr) return "variable";
  const auto text = [](const flatbuffers::String* s) { return s == nullptr ? "" : s->str(); };
  return Printable(text(options->container()) + text(options->shared_name()));
}

// Values that the subgraph of a CALL_ONCE puts into variables.
void TfliteReader::ReadInitialValues(uint32_t number) {
  const tflite::SubGraph& subgraph = *model_.subgraphs()->Get(number);
  std::map<int32_t, std::string> handles;
  for (uint32_t i = 0; i < SizeOf(subgraph.operators()); ++i) {
    const tflite::Operator& op = *subgraph.operators()->Get(i);
    const std::string kind = OperatorName(model_, op);
    const std::vector<int32_t> inputs = Indices(op.inputs()), outputs = Indices(op.outputs());
    if (kind == "VAR_HANDLE" && outputs.size() == 1) {
      handles[outputs[0]] = HandleOf(op);
    } else if (kind == "ASSIGN_VARIABLE" && inputs.size() == 2 && handles.contains(inputs[0]) &&
               constants_.contains({number, inputs[1]})) {
      variables_[handles[inputs[0]]].initial = constants_[{number, inputs[1]}];
    } else {
      problems_.Add(Unsupported(
          "subgraph {}, which sets up variables, has a {}; constants are assigned there", number,
          kind));
    }
  }
}

ValueId TfliteReader::ReadVariable(const std::string& name, int32_t tensor, Scope& scope) {
  Variable& variable = variables_[name];
  if (variable.current != kNone) return variable.current;
  if (!variable.assigned && variable.initial != nullptr) {
    return variable.current =
               PushConstant(*scope.graph, scope.value_names->Take(name), variable.initial);
  }
  Type type = TypeOf(TensorOf(scope, tensor));
  if (variable.initial != nullptr) {
    const std::vector<int64_t>& dims = variable.initial->tensor.dims();
    type = Type::Tensor(variable.initial->tensor.dtype(), {dims.begin(), dims.end()});
  }
  variable.input = PushValue(*scope.graph, scope.value_names->Take(name), std::move(type));
  scope.graph->inputs.push_back(variable.input);
  return variable.current = variable.input;
}

// True when the operator is understood here.
bool TfliteReader::ReadStructure(const std::string& kind, const tflite::Operator& op,
                                 const std::string& name, Scope& scope) {
  const std::string user = fmt::format("operator `{}` ({})", name, kind);
  const std::vector<int32_t> inputs = Indices(op.inputs()), outputs = Indices(op.outputs());
  const std::vector<int64_t> called = SubgraphsOf(op);
  const size_t needed = kind == "IF" || kind == "WHILE" ? 2 : 1;
  const bool inlined = kind == "CALL" || kind == "STABLEHLO_COMPOSITE";
  const bool calls = kind == "IF" || kind == "WHILE" || inlined || kind == "CALL_ONCE";
  if (calls && called.size() != needed) {
    problems_.Add(InvalidArgument("{}: does not say which subgraph it runs", user));
  } else if (kind == "IF") {
    ReadIf(op, name, scope);
  } else if (kind == "WHILE") {
    ReadWhile(op, name, scope);
  } else if (inlined) {
    const std::vector<ValueId> results =
        Inline(called[0], UsesOf(op, 0, user, scope), name + "/", scope);
    for (size_t i = 0; i < std::min(outputs.size(), results.size()); ++i)
      Define(scope, outputs[i], results[i], user);
  } else if (!scope.is_main) {
    problems_.Add(Unsupported("{}: variables inside subgraphs", user));
  } else if (kind == "CALL_ONCE") {
    ReadInitialValues(static_cast<uint32_t>(called[0]));
  } else if (kind == "VAR_HANDLE" && outputs.size() == 1) {
    handles_[outputs[0]] = HandleOf(op);
  } else if (kind == "READ_VARIABLE" && inputs.size() == 1 && outputs.size() == 1 &&
             handles_.contains(inputs[0])) {
    Define(scope, outputs[0], ReadVariable(handles_[inputs[0]], outputs[0], scope), user);
  } else if (kind == "ASSIGN_VARIABLE" && inputs.size() == 2 && handles_.contains(inputs[0])) {
    variables_[handles_[inputs[0]]].current = UseOf(scope, inputs[1], user);
  } else {
    problems_.Add(
        InvalidArgument("{}: has {} inputs and {} outputs, or its first input is no "
                        "variable",
                        user, inputs.size(), outputs.size()));
  }
  return true;
}

// ---- The model ----

void TfliteReader::ReadInputs(const Entry& entry, Scope& scope) {
  std::vector<DeclaredInput> declared;
  std::set<std::string> names;
  std::vector<int32_t> tensors;
  for (const int32_t tensor : entry.inputs) {
    const tflite::Tensor& given = TensorOf(scope, tensor);
    DeclaredInput input;
    input.name = NameOf(scope, tensor);
    names.insert(input.name);
    if (options_.freeze_params.contains(input.name)) continue;
    const absl::StatusOr<DataType> dtype = DataTypeOf(given.type());
    input.type = dtype.ok() ? absl::StatusOr<Type>(Type::Tensor(*dtype, {})) : dtype.status();
    input.dims.emplace();
    for (const int64_t dim : DeclaredDims(given)) input.dims->push_back({dim, ""});
    declared.push_back(std::move(input));
    tensors.push_back(tensor);
  }
  absl::StatusOr<std::vector<GraphInput>> inputs =
      ResolveInputs(std::move(declared), names, true, options_, *scope.graph->symbols);
  if (!inputs.ok()) return problems_.Add(inputs.status());
  for (size_t i = 0; i < tensors.size(); ++i) {
    ValueId id = PushInput(*scope.graph, *scope.value_names, *scope.node_names, (*inputs)[i]);
    const tflite::Tensor& given = TensorOf(scope, tensors[i]);
    const absl::StatusOr<TensorScale> scale = ScaleOf(given);
    if (!scale.ok())
      problems_.Add(Annotate(scale.status(), fmt::format("input `{}`", (*inputs)[i].name)));
    const DataType wanted = (*inputs)[i].type.dtype;
    if (scale.ok() && !scale->scale.empty() && !IsFloat(wanted) && wanted != TypeOf(given).dtype) {
      problems_.Add(InvalidArgument(
          "input `{}`: is asked for as {}, but has steps of its own, which are {}: {} or a float "
          "type is possible",
          (*inputs)[i].name, DataTypeName(wanted), DataTypeName(TypeOf(given).dtype),
          DataTypeName(TypeOf(given).dtype)));
    }
    if (scale.ok() && !scale->scale.empty() && IsFloat(wanted)) {
      Node quantize;  // the caller gives floats
      quantize.name = scope.node_names->Take((*inputs)[i].name + "/quantize");
      quantize.op = "QUANTIZE";
      quantize.domain = "tflite";
      quantize.version = 1;
      quantize.inputs = {id};
      quantize.outputs = {PushValue(*scope.graph, scope.value_names->Take(quantize.name))};
      scope.graph->value(quantize.outputs[0]).type.dtype = TypeOf(given).dtype;
      AddScale("output", 0, *scale, quantize);
      id = quantize.outputs[0];
      PushNode(*scope.graph, std::move(quantize));
    }
    scope.values[static_cast<size_t>(tensors[i])] = id;
  }
}

void TfliteReader::AddOutputs(const Entry& entry, Scope& scope) {
  std::set<ValueId> taken;
  for (const int32_t tensor : entry.outputs) {
    const std::string name = NameOf(scope, tensor);
    const ValueId id = UseOf(scope, tensor, fmt::format("output `{}`", name));
    const ValueId output = Fresh(scope, id, taken);
    if (output != kNone) scope.graph->outputs.push_back(output);
  }
  for (auto& [name, variable] : variables_) {
    if (variable.input == kNone || variable.current == variable.input) continue;
    const std::string& input = scope.graph->value(variable.input).name;
    states_.push_back({input, variable.current});
    if (variable.initial != nullptr)
      DescribeInitial(input, variable.initial->tensor, scope.graph->metadata);
  }
  for (const State& state : states_) {
    if (state.next == kNone) continue;
    const ValueId output = Fresh(scope, state.next, taken);
    scope.graph->outputs.push_back(output);
    scope.graph->metadata[kStateKey + state.input] = scope.graph->value(output).name;
  }
}

void TfliteReader::Describe(const Entry& entry, Graph& graph) const {
  graph.metadata["producer"] = "TensorFlow Lite";
  if (model_.description() != nullptr && model_.description()->size() > 0)
    graph.metadata["description"] = Printable(model_.description()->str());
  const tflite::SubGraph& subgraph = *model_.subgraphs()->Get(entry.subgraph);
  for (const auto* list : {&entry.inputs, &entry.outputs}) {
    for (const int32_t tensor : *list) {
      const absl::StatusOr<TensorScale> scale =
          ScaleOf(*subgraph.tensors()->Get(static_cast<uint32_t>(tensor)));
      if (!scale.ok() || scale->scale.size() != 1) continue;
      const auto named = entry.names.find(tensor);
      graph.metadata["quantization." +
                     (named != entry.names.end() ? named->second : TensorName(subgraph, tensor))] =
          fmt::format("scale {} zero_point {}", static_cast<float>(scale->scale[0]),
                      scale->zero[0]);
    }
  }
}

absl::StatusOr<Graph> TfliteReader::Read() {
  QUENCH_ASSIGN_OR_RETURN(const Entry entry, EntryOf(model_, options_));
  const tflite::SubGraph& subgraph = *model_.subgraphs()->Get(entry.subgraph);
  const std::vector<bool> needed = NeededOperators(subgraph, entry, options_);
  QUENCH_RETURN_IF_ERROR(CheckOperators(model_, entry, needed));
  Graph graph;
  graph.name = subgraph.name() == nullptr || subgraph.name()->size() == 0
                   ? "main"
                   : Printable(subgraph.name()->str());
  graph.stage = Stage::kImported;
  Describe(entry, graph);
  NameSet value_names, node_names;
  Scope scope = ScopeOf(entry.subgraph);
  scope.graph = &graph;
  scope.value_names = &value_names;
  scope.node_names = &node_names;
  scope.names = entry.names;
  scope.is_main = true;

  LoadConstants(entry.subgraph, &needed);
  std::map<std::string, std::shared_ptr<const Constant>> frozen;
  for (const auto& [name, tensor] : options_.freeze_params) {
    QUENCH_ASSIGN_OR_RETURN(frozen[name], weights_.Add(name, tensor));
  }
  QUENCH_RETURN_IF_ERROR(weights_.Finish());
  QUENCH_RETURN_IF_ERROR(context_.Check());
  ReadInputs(entry, scope);
  for (const int32_t tensor : entry.inputs) {
    const auto constant = frozen.find(NameOf(scope, tensor));
    if (constant == frozen.end()) continue;
    scope.values[static_cast<size_t>(tensor)] =
        PushConstant(graph, value_names.Take(constant->first), constant->second);
  }
  QUENCH_RETURN_IF_ERROR(problems_.Finish());
  std::map<int32_t, std::string> handles;
  for (uint32_t i = 0; i < SizeOf(subgraph.operators()); ++i) {
    const tflite::Operator& op = *subgraph.operators()->Get(i);
    const std::string kind = OperatorName(model_, op);
    if (kind == "VAR_HANDLE" && SizeOf(op.outputs()) == 1)
      handles[op.outputs()->Get(0)] = HandleOf(op);
    if (kind == "ASSIGN_VARIABLE" && SizeOf(op.inputs()) == 2 &&
        handles.contains(op.inputs()->Get(0)))
      variables_[handles[op.inputs()->Get(0)]].assigned = true;
  }
  ReadOperators(&needed, scope);
  AddOutputs(entry, scope);
  QUENCH_RETURN_IF_ERROR(problems_.Finish());
  if (graph.outputs.empty()) return InvalidArgument("the model has no outputs");
  return graph;
}

}  // namespace

absl::StatusOr<Graph> ReadTfliteGraph(const TfliteFile& file, const ImportOptions& options,
                                      WeightWriter& weights, const StepContext& context) {
  return TfliteReader(file, options, weights, context).Read();
}

}  // namespace quench::importer
