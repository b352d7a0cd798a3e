// torch.export's archives: a graph in JSON, its weights beside it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/torch/export_schema.h"
#include "services/importer/torch/export_sizes.h"
#include "services/importer/torch/model.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr int kMaxGraphNesting = 16;
constexpr std::string_view kOps = "torch.ops.";

// The one output of a node, or null where it has none or several.
const Json* OnlyOutput(const Json& outputs) {
  return outputs.is_array() && outputs.size() == 1 ? &outputs[0] : nullptr;
}

// The kind of number that a node gives; nothing for tensors.
std::optional<RuntimeNumber::Kind> NumberKind(const Json& outputs) {
  const Json* output = OnlyOutput(outputs);
  if (output == nullptr) return std::nullopt;
  if (ExportMember(*output, "as_sym_int") != nullptr) return RuntimeNumber::Kind::kInt;
  if (ExportMember(*output, "as_sym_bool") != nullptr) return RuntimeNumber::Kind::kBool;
  if (ExportMember(*output, "as_sym_float") != nullptr) return RuntimeNumber::Kind::kFloat;
  return std::nullopt;
}

// "torch.ops.aten.add.Tensor" is {aten, add.Tensor}. Arithmetic on sizes is Python's: _operator.add, math.ceil,
// torch.sym_max.
std::pair<std::string, std::string> OperatorOf(const std::string& target) {
  if (target.starts_with(kOps)) {
    const std::string rest = target.substr(kOps.size());
    const size_t dot = std::min(rest.find('.'), rest.size());
    return {rest.substr(0, dot), rest.substr(std::min(dot + 1, rest.size()))};
  }
  std::string op = target.substr(target.rfind('.') + 1);
  if (op.starts_with("sym_")) op = op.substr(4);
  if (op == "truediv") op = "div";
  if (op == "and_" || op == "or_") op = "__" + op.substr(0, op.size() - 1) + "__";
  return {"aten", op};
}

// The module that a node is of: `a.seq.1` where the graph says "L__self__,,M;...;L__self__a.seq.1,a.seq.1,Conv2d", key, path and
// class of each module around it. The path of one that runs again ends in `@N`.
std::string ModuleOf(const Json& node) {
  const Json* metadata = ExportMember(node, "metadata");
  const Json* stack = metadata == nullptr ? nullptr : ExportMember(*metadata, "nn_module_stack");
  if (stack == nullptr) return "";
  const std::string text = ExportText(stack);
  const std::string last = text.substr(text.rfind(';') + 1);
  const size_t begin = last.find(',');
  if (begin == std::string::npos) return "";
  return last.substr(begin + 1, last.find_first_of(",@", begin + 1) - begin - 1);
}

class ExportReader {
 public:
  ExportReader(const TorchArchive& archive, const ImportOptions& options,
               const std::set<std::string>& written, TorchProgram& program)
      : archive_(archive), options_(options), written_(written), p_(program) {}

  absl::StatusOr<TorchResult> Read();

 private:
  using Env = std::map<std::string, TorchValue>;

  absl::StatusOr<DeclaredInput> InputOf(const std::string& name, const Json& type) const;
  absl::Status AddSpec(const Json& spec, const Json& types, std::vector<TorchInput>& declared,
                       Env& env, TorchResult& result);
  absl::Status AddInputs(const Json& graph, const Json& signature, Env& env, TorchResult& result);
  absl::Status AddWeight(const std::string& value, const std::string& name, bool is_buffer,
                         Env& env, TorchResult& result);
  absl::StatusOr<TorchValue> ArgumentOf(const Json& argument, const Env& env);
  absl::Status Run(const Json& graph, Env& env, int depth);
  absl::Status RunNode(const Json& node, Env& env, int depth);
  absl::Status ReadArguments(const std::string& target, const Json& inputs, const Env& env,
                             std::vector<TorchValue>& positional, TorchArguments& named);
  absl::Status ReadOutput(const Json& output, const Json& spec, const Env& env,
                          TorchResult& result);
  absl::Status Write(const CellPtr& cell, const std::string& name, const Json& output,
                     const Env& env);
  absl::Status ReadOutputs(const Json& graph, const Json& signature, const Env& env,
                           TorchResult& result);
  // An operator that runs graphs, with its other arguments.
  struct HigherOrder {
    std::string op, name;
    std::vector<const Json*> graphs;
    std::vector<TorchValue> values;
    int depth = 0;

    std::vector<TorchValue> ItemsOf(size_t i) const;  // of a list among the values
  };
  absl::StatusOr<TorchValue> RunHigherOrder(const std::string& op, const std::string& name,
                                            const Json& inputs, const Env& env, int depth);
  absl::StatusOr<std::vector<TorchValue>> RunCond(const HigherOrder& node);
  absl::StatusOr<std::vector<TorchValue>> RunWhile(const HigherOrder& node);
  absl::StatusOr<std::vector<TorchValue>> RunWrapped(const HigherOrder& node);
  absl::StatusOr<std::vector<TorchValue>> RunSubgraph(const Json& graph,
                                                      const std::vector<TorchValue>& inputs,
                                                      int depth);
  absl::Status Define(const Json& outputs, const TorchValue& value, Env& env);

  const TorchArchive& archive_;
  const ImportOptions& options_;
  const std::set<std::string>& written_;
  TorchProgram& p_;
  std::map<std::string, Tensor> weights_;
  std::optional<ExportSizes> sizes_;
  std::vector<std::pair<std::string, CellPtr>> user_inputs_;
};

// ---- Inputs ----

absl::Status ExportReader::AddWeight(const std::string& value, const std::string& name,
                                     bool is_buffer, Env& env, TorchResult& result) {
  const auto found = weights_.find(name);
  if (found == weights_.end())
    return InvalidArgument("the archive has no weight `{}`", Printable(name));
  const bool state = written_.contains(name);
  if (state && IsComplex(found->second.dtype()))
    return Unsupported("the model writes to `{}`, which is complex", Printable(name));
  const CellPtr cell = state ? p_.NewCell(-1) : p_.NewConstant(name, found->second);
  cell->name = name;
  env[value] = cell;
  if (is_buffer) result.states.push_back({name, cell, 0, found->second});
  return absl::OkStatus();
}

absl::StatusOr<DeclaredInput> ExportReader::InputOf(const std::string& name,
                                                    const Json& value) const {
  const Json* meta = ExportMember(value, "meta");  // of schema 1
  const Json& type = meta == nullptr ? value : *meta;
  DeclaredInput input;
  input.name = name;
  const absl::StatusOr<DataType> element = ExportDataType(ExportMember(type, "dtype"));
  if (element.ok() && IsComplex(*element))
    return Unsupported("input `{}` is complex: `torch.view_as_complex` makes one of a real one",
                       Printable(name));
  input.type = element.ok() ? absl::StatusOr<Type>(Type::Tensor(*element, {})) : element.status();
  input.dims.emplace();
  if (const Json* sizes = ExportMember(type, "sizes")) {
    absl::StatusOr<std::vector<DeclaredDim>> dims = sizes_->DimsOf(*sizes);
    if (!dims.ok()) return Annotate(dims.status(), fmt::format("input `{}`", Printable(name)));
    input.dims = *std::move(dims);
  }
  return input;
}

absl::Status ExportReader::AddSpec(const Json& spec, const Json& types,
                                   std::vector<TorchInput>& declared, Env& env,
                                   TorchResult& result) {
  const auto value_of = [](const Json& kind) {
    const Json* argument = ExportMember(kind, "arg");
    return argument == nullptr ? std::string() : ExportNameIn(*argument);
  };
  if (const Json* user = ExportMember(spec, "user_input")) {
    const std::string name = value_of(*user);
    const Json* type = ExportMember(types, name.c_str());
    if (type == nullptr)
      return absl::OkStatus();  // a number or None, which the graph has in its place
    TorchInput input;
    QUENCH_ASSIGN_OR_RETURN(input.declared, InputOf(name, *type));
    declared.push_back(std::move(input));
    return absl::OkStatus();
  }
  if (ExportMember(spec, "custom_obj") != nullptr)
    return Unsupported("the graph takes an object of a class of its own");
  static constexpr std::tuple<const char*, const char*, bool> kKinds[] = {
      {"parameter", "parameter_name", false},
      {"buffer", "buffer_name", true},
      {"tensor_constant", "tensor_constant_name", true}};
  for (const auto& [kind, name, is_buffer] : kKinds) {
    if (const Json* weight = ExportMember(spec, kind))
      return AddWeight(value_of(*weight), ExportText(ExportMember(*weight, name)), is_buffer, env,
                       result);
  }
  return absl::OkStatus();
}

absl::Status ExportReader::AddInputs(const Json& graph, const Json& signature, Env& env,
                                     TorchResult& result) {
  const Json* specs = ExportMember(signature, "input_specs");
  const Json* types = ExportMember(graph, "tensor_values");
  if (specs == nullptr || types == nullptr || !specs->is_array())
    return InvalidArgument("the graph has no inputs that could be read");
  std::vector<TorchInput> declared;
  StatusCollector problems;
  for (const Json& spec : *specs) problems.Add(AddSpec(spec, *types, declared, env, result));
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  const size_t own = declared.size();
  for (const TorchState& state : result.states) {
    if (!written_.contains(state.name)) continue;
    TorchInput input;
    input.declared.name = state.name;
    input.declared.type = Type::Tensor(state.initial.dtype(), {});
    input.declared.dims.emplace();
    for (const int64_t size : state.initial.dims()) input.declared.dims->push_back({size, ""});
    declared.push_back(std::move(input));
  }
  QUENCH_RETURN_IF_ERROR(AddTorchInputs(options_, p_, declared));
  for (size_t i = 0; i < own; ++i) {
    const CellPtr cell = p_.NewCell(declared[i].handle);
    env[declared[i].declared.name] = cell;
    user_inputs_.emplace_back(declared[i].declared.name, cell);
  }
  size_t next = own;
  for (TorchState& state : result.states) {
    if (written_.contains(state.name)) state.cell->handle = declared[next++].handle;
  }
  return absl::OkStatus();
}

// ---- Nodes ----

absl::StatusOr<TorchValue> ExportReader::ArgumentOf(const Json& argument, const Env& env) {
  if (!argument.is_object()) return InvalidArgument("an argument is not an object");
  // Schema 1 has every kind in each argument, and null in all but one.
  const auto given = std::find_if(argument.begin(), argument.end(),
                                  [](const Json& member) { return !member.is_null(); });
  if (given == argument.end()) return TorchValue();
  const std::string& kind = given.key();
  const Json& value = *given;
  const auto named = [&](const std::string& name) -> absl::StatusOr<TorchValue> {
    const auto found = env.find(name);
    if (found == env.end())
      return InvalidArgument("`{}` is used before it is defined", Printable(name));
    return found->second;
  };
  const auto number = [](const Json& json) -> absl::StatusOr<TorchValue> {
    if (json.is_boolean()) return TorchValue(json.get<bool>());
    if (json.is_number_integer()) return TorchValue(json.get<int64_t>());
    if (json.is_number()) return TorchValue(json.get<double>());
    if (json == "Infinity") return TorchValue(INFINITY);
    if (json == "-Infinity") return TorchValue(-INFINITY);
    if (json == "NaN") return TorchValue(std::numeric_limits<double>::quiet_NaN());
    return InvalidArgument("an argument is not a number");
  };
  const auto symbolic = [&](const Json& json) -> absl::StatusOr<TorchValue> {
    if (const Json* name = ExportMember(json, "as_name")) return named(ExportText(name));
    for (const char* plain : {"as_int", "as_float", "as_bool"}) {
      if (const Json* known = ExportMember(json, plain)) return number(*known);
    }
    return InvalidArgument("an argument is not a number");
  };
  const auto list = [&](const std::function<absl::StatusOr<TorchValue>(const Json&)>& item)
      -> absl::StatusOr<TorchValue> {
    std::vector<TorchValue> items;
    if (!value.is_array()) return InvalidArgument("an argument is not a list");
    for (const Json& element : value) {
      QUENCH_ASSIGN_OR_RETURN(TorchValue read, item(element));
      items.push_back(std::move(read));
    }
    return MakeList(std::move(items));
  };
  if (kind == "as_none") return TorchValue();
  if (kind == "as_tensor") return named(ExportText(ExportMember(value, "name")));
  if (kind == "as_tensors")
    return list([&](const Json& item) { return named(ExportText(ExportMember(item, "name"))); });
  if (kind == "as_optional_tensors") {
    return list([&](const Json& item) -> absl::StatusOr<TorchValue> {
      const Json* tensor = ExportMember(item, "as_tensor");
      if (tensor == nullptr) return TorchValue();
      return named(ExportText(ExportMember(*tensor, "name")));
    });
  }
  if (kind == "as_int" || kind == "as_float" || kind == "as_bool") return number(value);
  if (kind == "as_ints" || kind == "as_floats" || kind == "as_bools") return list(number);
  if (kind == "as_sym_int" || kind == "as_sym_bool" || kind == "as_sym_float")
    return symbolic(value);
  if (kind == "as_sym_ints" || kind == "as_sym_floats") return list(symbolic);
  if (kind == "as_string") return TorchValue(ExportText(&value));
  if (kind == "as_strings")
    return list([](const Json& item) -> absl::StatusOr<TorchValue> {
      return TorchValue(ExportText(&item));
    });
  if (kind == "as_scalar_type") {
    QUENCH_ASSIGN_OR_RETURN(const DataType dtype, ExportDataType(&value));
    return TorchValue(ScalarTypeOf(dtype));
  }
  if (kind == "as_device") return TorchValue(std::string("cpu"));
  if (kind == "as_layout" || kind == "as_memory_format") return TorchValue();
  return Unsupported("an argument of the kind `{}` is not read", Printable(kind));
}

absl::Status ExportReader::Define(const Json& outputs, const TorchValue& value, Env& env) {
  if (!outputs.is_array()) return InvalidArgument("a node has no list of outputs");
  const auto* list = std::get_if<std::shared_ptr<TorchList>>(&value);
  const Json* only = OnlyOutput(outputs);
  if (const Json* tensors = only == nullptr ? nullptr : ExportMember(*only, "as_tensors")) {
    const Json& names = *tensors;
    if (!names.is_array() || list == nullptr || (*list)->items.size() != names.size())
      return InvalidArgument("a node has {} outputs, its operator another number", names.size());
    for (size_t i = 0; i < names.size(); ++i)
      env[ExportText(ExportMember(names[i], "name"))] = (*list)->items[i];
    return absl::OkStatus();
  }
  if (list == nullptr) {
    if (only != nullptr) env[ExportNameIn(*only)] = value;
    return absl::OkStatus();
  }
  for (size_t i = 0; i < std::min(outputs.size(), (*list)->items.size()); ++i) {
    const std::string name = ExportNameIn(outputs[i]);
    if (!name.empty()) env[name] = (*list)->items[i];
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TorchValue>> ExportReader::RunSubgraph(
    const Json& graph, const std::vector<TorchValue>& inputs, int depth) {
  const Json* names = ExportMember(graph, "inputs");
  const Json* outputs = ExportMember(graph, "outputs");
  if (names == nullptr || !names->is_array() || outputs == nullptr ||
      names->size() != inputs.size())
    return InvalidArgument("a subgraph takes {} values, {} are given",
                           names == nullptr ? 0 : names->size(), inputs.size());
  Env env;
  for (size_t i = 0; i < inputs.size(); ++i) env[ExportNameIn((*names)[i])] = inputs[i];
  QUENCH_RETURN_IF_ERROR(Run(graph, env, depth));
  std::vector<TorchValue> results;
  for (const Json& output : *outputs) {
    QUENCH_ASSIGN_OR_RETURN(TorchValue value, ArgumentOf(output, env));
    results.push_back(std::move(value));
  }
  return results;
}

std::vector<TorchValue> ExportReader::HigherOrder::ItemsOf(size_t i) const {
  const auto* list =
      i < values.size() ? std::get_if<std::shared_ptr<TorchList>>(&values[i]) : nullptr;
  return list == nullptr ? std::vector<TorchValue>{} : (*list)->items;
}

absl::StatusOr<std::vector<TorchValue>> ExportReader::RunCond(const HigherOrder& node) {
  TorchValue condition = node.values[0];
  if (const auto* cell = std::get_if<CellPtr>(&condition)) {
    QUENCH_ASSIGN_OR_RETURN(condition, p_.NumberOf(*cell, RuntimeNumber::Kind::kBool));
  }
  const auto branch = [&](size_t i) {
    return [&, i] { return RunSubgraph(*node.graphs[i], node.ItemsOf(1), node.depth); };
  };
  if (const auto* known = std::get_if<bool>(&condition)) return branch(*known ? 0 : 1)();
  return p_.If(node.name, condition, branch(0), branch(1));
}

absl::StatusOr<std::vector<TorchValue>> ExportReader::RunWhile(const HigherOrder& node) {
  const std::vector<TorchValue> initial = node.ItemsOf(0), more = node.ItemsOf(1);
  const auto with = [&](std::vector<TorchValue> carried) {
    carried.insert(carried.end(), more.begin(), more.end());
    return carried;
  };
  const auto test = [&](const std::vector<TorchValue>& carried) -> absl::StatusOr<TorchValue> {
    QUENCH_ASSIGN_OR_RETURN(const std::vector<TorchValue> results,
                            RunSubgraph(*node.graphs[0], with(carried), node.depth));
    if (results.size() != 1) return InvalidArgument("a condition has {} results", results.size());
    if (const auto* cell = std::get_if<CellPtr>(&results[0]))
      return p_.NumberOf(*cell, RuntimeNumber::Kind::kBool);
    return results[0];
  };
  const auto iteration =
      [&](const TorchValue&,
          const std::vector<TorchValue>& carried) -> absl::StatusOr<std::vector<TorchValue>> {
    QUENCH_ASSIGN_OR_RETURN(std::vector<TorchValue> next,
                            RunSubgraph(*node.graphs[1], with(carried), node.depth));
    QUENCH_ASSIGN_OR_RETURN(TorchValue again, test(next));
    next.insert(next.begin(), std::move(again));
    return next;
  };
  QUENCH_ASSIGN_OR_RETURN(const TorchValue first, test(initial));
  return p_.Loop(node.name, TorchValue(), first, initial, iteration);
}

// Graphs that run as they are: a block under no_grad, or under autocast that is off.
absl::StatusOr<std::vector<TorchValue>> ExportReader::RunWrapped(const HigherOrder& node) {
  const bool autocast = node.op == "wrap_with_autocast";
  const size_t settings = autocast ? 4 : 1;  // device, type, whether, caching
  if (node.values.size() < settings) return InvalidArgument("`{}` has too few arguments", node.op);
  const bool* enabled = autocast ? std::get_if<bool>(&node.values[2]) : nullptr;
  if (autocast && (enabled == nullptr || *enabled))
    return Unsupported("`{}`: automatic mixed precision", Printable(node.name));
  const std::vector<TorchValue> given(node.values.begin() + static_cast<std::ptrdiff_t>(settings),
                                      node.values.end());
  return RunSubgraph(*node.graphs[0], given, node.depth);
}

absl::StatusOr<TorchValue> ExportReader::RunHigherOrder(const std::string& op,
                                                        const std::string& name, const Json& inputs,
                                                        const Env& env, int depth) {
  HigherOrder node{op, name, {}, {}, depth};
  for (const Json& input : inputs) {
    const Json* argument = ExportMember(input, "arg");
    if (argument == nullptr) return InvalidArgument("an argument is missing");
    if (const Json* graph = ExportMember(*argument, "as_graph")) {
      const Json* body = ExportMember(*graph, "graph");
      if (body == nullptr) return InvalidArgument("a subgraph is missing");
      node.graphs.push_back(body);
      continue;
    }
    QUENCH_ASSIGN_OR_RETURN(TorchValue value, ArgumentOf(*argument, env));
    node.values.push_back(std::move(value));
  }
  const bool two = node.graphs.size() == 2 && !node.values.empty();
  const bool wraps = op == "wrap_with_set_grad_enabled" || op == "wrap_with_autocast";
  std::vector<TorchValue> results;
  if (op == "cond" && two) {
    QUENCH_ASSIGN_OR_RETURN(results, RunCond(node));
  } else if (op == "while_loop" && two) {
    QUENCH_ASSIGN_OR_RETURN(results, RunWhile(node));
  } else if (wraps && node.graphs.size() == 1) {
    QUENCH_ASSIGN_OR_RETURN(results, RunWrapped(node));
  } else {
    return p_.Call("higher_order", op, name, {}, {}, 1);
  }
  return MakeList(std::move(results), true);
}

absl::Status ExportReader::ReadArguments(const std::string& target, const Json& inputs,
                                         const Env& env, std::vector<TorchValue>& positional,
                                         TorchArguments& named) {
  for (const Json& input : inputs) {
    const Json* argument = ExportMember(input, "arg");
    if (argument == nullptr) return InvalidArgument("an argument is missing");
    QUENCH_ASSIGN_OR_RETURN(TorchValue value, ArgumentOf(*argument, env));
    const std::string name = ExportText(ExportMember(input, "name"));
    if (name.empty() || !target.starts_with(kOps)) {
      positional.push_back(std::move(value));
    } else if (!IsNone(value)) {
      named.emplace_back(name, std::move(value));
    }
  }
  return absl::OkStatus();
}

absl::Status ExportReader::RunNode(const Json& node, Env& env, int depth) {
  const std::string target = ExportText(ExportMember(node, "target"));
  const Json* inputs = ExportMember(node, "inputs");
  const Json* outputs = ExportMember(node, "outputs");
  if (target.empty() || inputs == nullptr || outputs == nullptr || !inputs->is_array() ||
      !outputs->is_array())
    return InvalidArgument("a node has no target, inputs or outputs");
  const auto [domain, op] = OperatorOf(target);
  // Checks of what was true of the example.
  if (op.starts_with("_assert") || op.starts_with("sym_constrain_range")) return absl::OkStatus();
  std::string name = ExportText(ExportMember(node, "name"));
  if (name.empty() && !outputs->empty()) name = ExportNameIn((*outputs)[0]);
  name = NodeNameIn(ModuleOf(node), name);
  if (domain == "higher_order") {
    QUENCH_ASSIGN_OR_RETURN(const TorchValue value, RunHigherOrder(op, name, *inputs, env, depth));
    return Define(*outputs, value, env);
  }
  std::vector<TorchValue> positional;
  TorchArguments named;
  const absl::Status read = ReadArguments(target, *inputs, env, positional, named);
  if (!read.ok()) return Annotate(read, fmt::format("`{}`", Printable(name)));
  const std::optional<RuntimeNumber::Kind> number = NumberKind(*outputs);
  if (op.starts_with("item") || op.starts_with("_local_scalar_dense")) {
    const auto* cell = named.empty() ? nullptr : std::get_if<CellPtr>(&named[0].second);
    if (cell == nullptr) return InvalidArgument("`{}`: takes no tensor", Printable(name));
    QUENCH_ASSIGN_OR_RETURN(const TorchValue value,
                            p_.NumberOf(*cell, number.value_or(RuntimeNumber::Kind::kInt)));
    return Define(*outputs, value, env);
  }
  size_t count = outputs->size();
  if (const Json* only = OnlyOutput(*outputs)) {
    if (const Json* tensors = ExportMember(*only, "as_tensors")) count = tensors->size();
  }
  QUENCH_ASSIGN_OR_RETURN(
      TorchValue value, p_.Call(domain, op, name, std::move(positional), std::move(named), count));
  if (const auto* cell = std::get_if<CellPtr>(&value); number && cell != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(value, p_.NumberOf(*cell, *number));
  }
  return Define(*outputs, value, env);
}

absl::Status ExportReader::Run(const Json& graph, Env& env, int depth) {
  if (depth > kMaxGraphNesting)
    return InvalidArgument("subgraphs nest more than {} deep", kMaxGraphNesting);
  const Json* nodes = ExportMember(graph, "nodes");
  if (nodes == nullptr || !nodes->is_array()) return InvalidArgument("a graph has no nodes");
  for (const Json& node : *nodes) QUENCH_RETURN_IF_ERROR(RunNode(node, env, depth + 1));
  return absl::OkStatus();
}

// The signature says that the tensor is this output behind a run.
absl::Status ExportReader::Write(const CellPtr& cell, const std::string& name, const Json& output,
                                 const Env& env) {
  QUENCH_ASSIGN_OR_RETURN(const TorchValue value, ArgumentOf(output, env));
  QUENCH_ASSIGN_OR_RETURN(const Handle handle, p_.HandleOf(value));
  return p_.Assign(cell, handle, name);
}

absl::Status ExportReader::ReadOutput(const Json& output, const Json& spec, const Env& env,
                                      TorchResult& result) {
  if (ExportMember(spec, "user_output") != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(TorchValue value, ArgumentOf(output, env));
    result.outputs.emplace_back(ExportNameIn(output), std::move(value));
    return absl::OkStatus();
  }
  if (const Json* mutation = ExportMember(spec, "buffer_mutation")) {
    const std::string name = ExportText(ExportMember(*mutation, "buffer_name"));
    for (const TorchState& state : result.states) {
      if (state.name == name) QUENCH_RETURN_IF_ERROR(Write(state.cell, name, output, env));
    }
    return absl::OkStatus();
  }
  if (const Json* mutation = ExportMember(spec, "user_input_mutation")) {
    const std::string name = ExportText(ExportMember(*mutation, "user_input_name"));
    for (const auto& [input, cell] : user_inputs_) {
      if (input == name) return Write(cell, name, output, env);
    }
    return InvalidArgument("the graph writes to `{}`, which is none of its inputs",
                           Printable(name));
  }
  if (ExportMember(spec, "token") != nullptr) return absl::OkStatus();  // the order of effects
  std::string kind = "?";
  if (spec.is_object()) {
    for (const auto& [key, value] : spec.items()) {
      if (!value.is_null()) kind = key;
    }
  }
  return Unsupported("output `{}` is a `{}`: graphs for training are not read",
                     Printable(ExportNameIn(output)), Printable(kind));
}

absl::Status ExportReader::ReadOutputs(const Json& graph, const Json& signature, const Env& env,
                                       TorchResult& result) {
  const Json* outputs = ExportMember(graph, "outputs");
  const Json* specs = ExportMember(signature, "output_specs");
  if (outputs == nullptr || !outputs->is_array() || specs == nullptr || !specs->is_array() ||
      specs->size() != outputs->size())
    return InvalidArgument("the graph's outputs are not those of its signature");
  for (size_t i = 0; i < outputs->size(); ++i)
    QUENCH_RETURN_IF_ERROR(ReadOutput((*outputs)[i], (*specs)[i], env, result));
  // Written to in either way: by the signature, or in place by a node.
  for (const auto& [name, cell] : user_inputs_) {
    if (cell->version != 0) result.outputs.emplace_back(name + "/next", cell);
  }
  return absl::OkStatus();
}

absl::StatusOr<TorchResult> ExportReader::Read() {
  QUENCH_ASSIGN_OR_RETURN(const Json program, ReadExportProgram(archive_));
  const Json& graph = program["graph_module"]["graph"];
  const Json& signature = program["graph_module"]["signature"];
  QUENCH_ASSIGN_OR_RETURN(weights_, ReadExportWeights(archive_));
  sizes_.emplace(program);
  TorchResult result;
  Env env;
  QUENCH_RETURN_IF_ERROR(AddInputs(graph, signature, env, result));
  QUENCH_RETURN_IF_ERROR(Run(graph, env, 0));
  QUENCH_RETURN_IF_ERROR(ReadOutputs(graph, signature, env, result));
  return result;
}

}  // namespace

absl::StatusOr<TorchResult> ReadExported(const TorchArchive& archive, const ImportOptions& options,
                                         const std::set<std::string>& written,
                                         TorchProgram& program) {
  return ExportReader(archive, options, written, program).Read();
}

}  // namespace quench::importer
