// torch.export's archives: a graph in JSON, its weights beside it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/torch/model.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr int kMaxGraphNesting = 16;

// torch.export numbers types by itself.
int64_t ScalarTypeOfExported(int64_t type) {
  if (type >= 1 && type <= 12) return type - 1;
  switch (type) {
    case 13:
      return 15;  // bfloat16
    case 28:
      return 27;  // uint16
    case 29:
      return 24;  // float8_e4m3fn
    case 30:
      return 23;  // float8_e5m2
    default:
      return -1;
  }
}

const Json* Member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string TextOf(const Json* json) {
  return json != nullptr && json->is_string() ? json->get<std::string>() : "";
}

// The name within {"as_tensor": {"name": ...}} and its kin.
std::string NameIn(const Json& argument) {
  for (const char* kind : {"as_tensor", "as_custom_obj"}) {
    if (const Json* tensor = Member(argument, kind)) return TextOf(Member(*tensor, "name"));
  }
  for (const char* kind : {"as_sym_int", "as_sym_bool", "as_sym_float"}) {
    if (const Json* number = Member(argument, kind)) return TextOf(Member(*number, "as_name"));
  }
  return TextOf(Member(argument, "name"));
}

struct WeightPlace {
  TorchBytes bytes;  // raw, or
  bool is_pickled = false;
  Json meta;
};

class ExportReader {
 public:
  ExportReader(const TorchArchive& archive, const ImportOptions& options,
               const std::set<std::string>& written, TorchProgram& program)
      : archive_(archive), options_(options), written_(written), p_(program) {}

  absl::StatusOr<TorchResult> Read();

 private:
  using Env = std::map<std::string, TorchValue>;

  absl::Status LoadWeights();
  absl::Status LoadConfig(const std::string& folder, const std::string& config);
  absl::Status LoadPickled(const std::string& name);
  absl::StatusOr<Tensor> RawTensor(const Json& meta, const TorchBytes& bytes) const;
  absl::StatusOr<std::vector<DeclaredDim>> DimsOf(const Json& sizes) const;
  absl::Status AddInputs(const Json& graph, const Json& signature, Env& env, TorchResult& result);
  absl::Status AddWeight(const std::string& value, const std::string& name, bool is_buffer,
                         Env& env, TorchResult& result);
  absl::StatusOr<TorchValue> ArgumentOf(const Json& argument, const Env& env);
  absl::Status Run(const Json& graph, Env& env, int depth);
  absl::Status RunNode(const Json& node, Env& env, int depth);
  absl::StatusOr<TorchValue> RunHigherOrder(const std::string& op, const std::string& name,
                                            const Json& inputs, const Env& env, int depth);
  absl::StatusOr<std::vector<TorchValue>> RunSubgraph(const Json& graph,
                                                      const std::vector<TorchValue>& inputs,
                                                      int depth);
  absl::Status Define(const Json& outputs, const TorchValue& value, Env& env);

  const TorchArchive& archive_;
  const ImportOptions& options_;
  const std::set<std::string>& written_;
  TorchProgram& p_;
  std::map<std::string, Tensor> weights_;
  std::vector<std::pair<Tensor, CellPtr>> shared_;
};

// ---- Weights ----

absl::StatusOr<Tensor> ExportReader::RawTensor(const Json& meta, const TorchBytes& bytes) const {
  const Json* type = Member(meta, "dtype");
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype,
                          DataTypeOfScalarType(type != nullptr && type->is_number_integer()
                                                   ? ScalarTypeOfExported(type->get<int64_t>())
                                                   : -1));
  const auto ints = [&](const char* name) -> absl::StatusOr<std::vector<int64_t>> {
    std::vector<int64_t> values;
    const Json* list = Member(meta, name);
    if (list == nullptr || !list->is_array()) return InvalidArgument("has no {}", name);
    for (const Json& item : *list) {
      const Json* number = Member(item, "as_int");
      if (number == nullptr || !number->is_number_integer())
        return InvalidArgument("has {} that are no numbers", name);
      values.push_back(number->get<int64_t>());
    }
    return values;
  };
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, ints("sizes"));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, ints("strides"));
  int64_t offset = 0;
  if (const Json* begin = Member(meta, "storage_offset")) {
    const Json* number = Member(*begin, "as_int");
    if (number != nullptr && number->is_number_integer()) offset = number->get<int64_t>();
  }
  return StridedTensor(dtype, bytes, offset, dims, strides);
}

// `torch.save` of a dict, or of one tensor, in an archive of its own.
absl::Status ExportReader::LoadPickled(const std::string& name) {
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes bytes, archive_.Read(name));
  if (bytes.bytes.empty()) return absl::OkStatus();
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const TorchArchive> inner,
                          TorchArchive::Open(bytes));
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes pickle, inner->Read("data.pkl"));
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const PickleFile> file, ReadPickle(pickle.bytes));
  const Pickled& root = file->root();
  if (!root.Is(Pickled::Kind::kDict)) return InvalidArgument("`{}` has no dict of tensors", name);
  for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
    if (!root.items[i]->Is(Pickled::Kind::kText) || !IsTensor(*root.items[i + 1])) continue;
    absl::StatusOr<TorchTensor> tensor = ReadTensor(
        *root.items[i + 1], [&](const std::string& key) { return inner->Read("data/" + key); });
    if (!tensor.ok())
      return Annotate(tensor.status(), fmt::format("`{}`", Printable(root.items[i]->text)));
    weights_.emplace(root.items[i]->text, std::move(tensor->tensor));
  }
  return absl::OkStatus();
}

absl::Status ExportReader::LoadConfig(const std::string& folder, const std::string& config) {
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes text, archive_.Read(folder + config));
  const Json json = Json::parse(text.text(), nullptr, false);
  const Json* entries = Member(json, "config");
  if (entries == nullptr || !entries->is_object())
    return InvalidArgument("`{}` is no configuration of weights", folder + config);
  for (const auto& [name, entry] : entries->items()) {
    const std::string path = folder + TextOf(Member(entry, "path_name"));
    const Json* meta = Member(entry, "tensor_meta");
    const Json* pickled = Member(entry, "use_pickle");
    if (meta == nullptr || (pickled != nullptr && *pickled == true)) continue;  // no tensor
    QUENCH_ASSIGN_OR_RETURN(const TorchBytes bytes, archive_.Read(path));
    absl::StatusOr<Tensor> tensor = RawTensor(*meta, bytes);
    if (!tensor.ok()) return Annotate(tensor.status(), fmt::format("`{}`", Printable(name)));
    weights_.emplace(name, *std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status ExportReader::LoadWeights() {
  for (const std::string& name : archive_.Names()) {
    const bool config =
        name.ends_with("_weights_config.json") || name.ends_with("_constants_config.json");
    if (config && name.starts_with("data/")) {
      const size_t slash = name.rfind('/') + 1;
      QUENCH_RETURN_IF_ERROR(LoadConfig(name.substr(0, slash), name.substr(slash)));
    }
  }
  for (const char* name :
       {"data/weights/model.pt", "data/constants/model.pt", "serialized_state_dict.pt",
        "serialized_constants.pt", "serialized_state_dict.json", "serialized_constants.json"}) {
    if (archive_.Has(name)) QUENCH_RETURN_IF_ERROR(Annotate(LoadPickled(name), name));
  }
  return absl::OkStatus();
}

// ---- Inputs ----

absl::StatusOr<std::vector<DeclaredDim>> ExportReader::DimsOf(const Json& sizes) const {
  std::vector<DeclaredDim> dims;
  for (const Json& size : sizes) {
    DeclaredDim dim;
    if (const Json* number = Member(size, "as_int"); number && number->is_number_integer()) {
      dim.size = number->get<int64_t>();
    } else if (const Json* expression = Member(size, "as_expr")) {
      const std::string text = TextOf(Member(*expression, "expr_str"));
      const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_';
      });
      if (plain) dim.name = text;
    } else {
      return InvalidArgument("a size is neither a number nor an expression");
    }
    dims.push_back(dim);
  }
  return dims;
}

absl::Status ExportReader::AddWeight(const std::string& value, const std::string& name,
                                     bool is_buffer, Env& env, TorchResult& result) {
  const auto found = weights_.find(name);
  if (found == weights_.end())
    return InvalidArgument("the archive has no weight `{}`", Printable(name));
  const CellPtr cell = p_.NewCell(-1);
  cell->name = name;
  env[value] = cell;
  const bool state = written_.contains(name);
  if (!state) cell->handle = p_.b.AddConstant(name, found->second);
  if (is_buffer) result.states.push_back({name, cell, 0, found->second});
  return absl::OkStatus();
}

absl::Status ExportReader::AddInputs(const Json& graph, const Json& signature, Env& env,
                                     TorchResult& result) {
  const Json* inputs = Member(graph, "inputs");
  const Json* specs = Member(signature, "input_specs");
  const Json* types = Member(graph, "tensor_values");
  if (inputs == nullptr || specs == nullptr || types == nullptr || !specs->is_array())
    return InvalidArgument("the graph has no inputs that could be read");
  std::vector<TorchInput> declared;
  std::vector<std::string> values;
  StatusCollector problems;
  for (const Json& spec : *specs) {
    const Json* user = Member(spec, "user_input");
    if (user != nullptr) {
      const Json* argument = Member(*user, "arg");
      const std::string name = argument == nullptr ? "" : NameIn(*argument);
      const Json* type = Member(*types, name.c_str());
      if (type == nullptr) continue;  // a number or None, which the graph has in its place
      TorchInput input;
      input.declared.name = name;
      const Json* dtype = Member(*type, "dtype");
      absl::StatusOr<DataType> element =
          DataTypeOfScalarType(dtype != nullptr && dtype->is_number_integer()
                                   ? ScalarTypeOfExported(dtype->get<int64_t>())
                                   : -1);
      input.declared.type =
          element.ok() ? absl::StatusOr<Type>(Type::Tensor(*element, {})) : element.status();
      const Json* sizes = Member(*type, "sizes");
      QUENCH_ASSIGN_OR_RETURN(input.declared.dims,
                              DimsOf(sizes == nullptr ? Json::array() : *sizes));
      declared.push_back(std::move(input));
      values.push_back(name);
      continue;
    }
    const std::tuple<const char*, const char*, bool> kinds[] = {
        {"parameter", "parameter_name", false},
        {"buffer", "buffer_name", true},
        {"tensor_constant", "tensor_constant_name", true}};
    for (const auto& [kind, name, is_buffer] : kinds) {
      const Json* weight = Member(spec, kind);
      if (weight == nullptr) continue;
      const Json* argument = Member(*weight, "arg");
      problems.Add(AddWeight(argument == nullptr ? "" : NameIn(*argument),
                             TextOf(Member(*weight, name)), is_buffer, env, result));
    }
    if (Member(spec, "custom_obj") != nullptr)
      problems.Add(Unsupported("the graph takes an object of a class of its own"));
  }
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
    env[values[i]] = p_.NewCell(declared[i].handle);
  }
  size_t next = own;
  for (TorchState& state : result.states) {
    if (written_.contains(state.name)) state.cell->handle = declared[next++].handle;
  }
  return absl::OkStatus();
}

// ---- Nodes ----

absl::StatusOr<TorchValue> ExportReader::ArgumentOf(const Json& argument, const Env& env) {
  if (!argument.is_object() || argument.empty()) return InvalidArgument("an argument is no object");
  const std::string kind = argument.begin().key();
  const Json& value = argument.begin().value();
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
    return InvalidArgument("an argument is no number");
  };
  const auto symbolic = [&](const Json& json) -> absl::StatusOr<TorchValue> {
    if (const Json* name = Member(json, "as_name")) return named(TextOf(name));
    for (const char* plain : {"as_int", "as_float", "as_bool"}) {
      if (const Json* known = Member(json, plain)) return number(*known);
    }
    return InvalidArgument("an argument is no number");
  };
  const auto list = [&](const std::function<absl::StatusOr<TorchValue>(const Json&)>& item)
      -> absl::StatusOr<TorchValue> {
    std::vector<TorchValue> items;
    if (!value.is_array()) return InvalidArgument("an argument is no list");
    for (const Json& element : value) {
      QUENCH_ASSIGN_OR_RETURN(TorchValue read, item(element));
      items.push_back(std::move(read));
    }
    return MakeList(std::move(items));
  };
  if (kind == "as_none") return TorchValue();
  if (kind == "as_tensor") return named(TextOf(Member(value, "name")));
  if (kind == "as_tensors")
    return list([&](const Json& item) { return named(TextOf(Member(item, "name"))); });
  if (kind == "as_optional_tensors") {
    return list([&](const Json& item) -> absl::StatusOr<TorchValue> {
      const Json* tensor = Member(item, "as_tensor");
      if (tensor == nullptr) return TorchValue();
      return named(TextOf(Member(*tensor, "name")));
    });
  }
  if (kind == "as_int" || kind == "as_float" || kind == "as_bool") return number(value);
  if (kind == "as_ints" || kind == "as_floats" || kind == "as_bools") return list(number);
  if (kind == "as_sym_int" || kind == "as_sym_bool" || kind == "as_sym_float")
    return symbolic(value);
  if (kind == "as_sym_ints" || kind == "as_sym_floats") return list(symbolic);
  if (kind == "as_string") return TorchValue(TextOf(&value));
  if (kind == "as_strings")
    return list(
        [](const Json& item) -> absl::StatusOr<TorchValue> { return TorchValue(TextOf(&item)); });
  if (kind == "as_scalar_type")
    return TorchValue(value.is_number_integer() ? ScalarTypeOfExported(value.get<int64_t>()) : -1);
  if (kind == "as_device") return TorchValue(std::string("cpu"));
  if (kind == "as_layout" || kind == "as_memory_format") return TorchValue();
  return Unsupported("an argument of the kind `{}` is not read", Printable(kind));
}

absl::Status ExportReader::Define(const Json& outputs, const TorchValue& value, Env& env) {
  if (!outputs.is_array()) return InvalidArgument("a node has no list of outputs");
  const auto* list = std::get_if<std::shared_ptr<TorchList>>(&value);
  if (outputs.size() == 1 && Member(outputs[0], "as_tensors") != nullptr) {
    const Json& names = outputs[0]["as_tensors"];
    if (list == nullptr || (*list)->items.size() != names.size())
      return InvalidArgument("a node has {} outputs, its operator another number", names.size());
    for (size_t i = 0; i < names.size(); ++i)
      env[TextOf(Member(names[i], "name"))] = (*list)->items[i];
    return absl::OkStatus();
  }
  if (list == nullptr) {
    if (outputs.size() == 1) env[NameIn(outputs[0])] = value;
    return absl::OkStatus();
  }
  for (size_t i = 0; i < std::min(outputs.size(), (*list)->items.size()); ++i) {
    const std::string name = NameIn(outputs[i]);
    if (!name.empty()) env[name] = (*list)->items[i];
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TorchValue>> ExportReader::RunSubgraph(
    const Json& graph, const std::vector<TorchValue>& inputs, int depth) {
  const Json* names = Member(graph, "inputs");
  const Json* outputs = Member(graph, "outputs");
  if (names == nullptr || outputs == nullptr || names->size() != inputs.size())
    return InvalidArgument("a subgraph takes {} values, {} are given",
                           names == nullptr ? 0 : names->size(), inputs.size());
  Env env;
  for (size_t i = 0; i < inputs.size(); ++i) env[NameIn((*names)[i])] = inputs[i];
  QUENCH_RETURN_IF_ERROR(Run(graph, env, depth));
  std::vector<TorchValue> results;
  for (const Json& output : *outputs) {
    QUENCH_ASSIGN_OR_RETURN(TorchValue value, ArgumentOf(output, env));
    results.push_back(std::move(value));
  }
  return results;
}

absl::StatusOr<TorchValue> ExportReader::RunHigherOrder(const std::string& op,
                                                        const std::string& name, const Json& inputs,
                                                        const Env& env, int depth) {
  std::vector<const Json*> graphs;
  std::vector<TorchValue> values;
  for (const Json& input : inputs) {
    const Json* argument = Member(input, "arg");
    if (argument == nullptr) return InvalidArgument("an argument is missing");
    if (const Json* graph = Member(*argument, "as_graph")) {
      const Json* body = Member(*graph, "graph");
      if (body == nullptr) return InvalidArgument("a subgraph is missing");
      graphs.push_back(body);
      continue;
    }
    QUENCH_ASSIGN_OR_RETURN(TorchValue value, ArgumentOf(*argument, env));
    values.push_back(std::move(value));
  }
  const auto items = [&](size_t i) {
    const auto* list =
        i < values.size() ? std::get_if<std::shared_ptr<TorchList>>(&values[i]) : nullptr;
    return list == nullptr ? std::vector<TorchValue>{} : (*list)->items;
  };
  if (op == "cond" && graphs.size() == 2 && !values.empty()) {
    TorchValue condition = values[0];
    if (const auto* cell = std::get_if<CellPtr>(&condition)) {
      QUENCH_ASSIGN_OR_RETURN(condition, p_.NumberOf(*cell, RuntimeNumber::Kind::kBool));
    }
    if (const auto* known = std::get_if<bool>(&condition)) {
      QUENCH_ASSIGN_OR_RETURN(std::vector<TorchValue> results,
                              RunSubgraph(*graphs[*known ? 0 : 1], items(1), depth));
      return MakeList(std::move(results), true);
    }
    QUENCH_ASSIGN_OR_RETURN(
        std::vector<TorchValue> results,
        p_.If(
            name, condition, [&] { return RunSubgraph(*graphs[0], items(1), depth); },
            [&] { return RunSubgraph(*graphs[1], items(1), depth); }));
    return MakeList(std::move(results), true);
  }
  if (op == "while_loop" && graphs.size() == 2 && values.size() >= 1) {
    const std::vector<TorchValue> more = items(1);
    const auto with = [&](std::vector<TorchValue> carried) {
      carried.insert(carried.end(), more.begin(), more.end());
      return carried;
    };
    const auto test = [&](const std::vector<TorchValue>& carried) -> absl::StatusOr<TorchValue> {
      QUENCH_ASSIGN_OR_RETURN(const std::vector<TorchValue> results,
                              RunSubgraph(*graphs[0], with(carried), depth));
      if (results.size() != 1) return InvalidArgument("a condition has {} results", results.size());
      if (const auto* cell = std::get_if<CellPtr>(&results[0]))
        return p_.NumberOf(*cell, RuntimeNumber::Kind::kBool);
      return results[0];
    };
    QUENCH_ASSIGN_OR_RETURN(const TorchValue first, test(items(0)));
    QUENCH_ASSIGN_OR_RETURN(std::vector<TorchValue> results,
                            p_.Loop(name, TorchValue(), first, items(0),
                                    [&](const TorchValue&, const std::vector<TorchValue>& carried)
                                        -> absl::StatusOr<std::vector<TorchValue>> {
                                      QUENCH_ASSIGN_OR_RETURN(
                                          std::vector<TorchValue> next,
                                          RunSubgraph(*graphs[1], with(carried), depth));
                                      QUENCH_ASSIGN_OR_RETURN(TorchValue again, test(next));
                                      next.insert(next.begin(), std::move(again));
                                      return next;
                                    }));
    return MakeList(std::move(results), true);
  }
  const bool autocast = op == "wrap_with_autocast";
  if ((op == "wrap_with_set_grad_enabled" || autocast) && graphs.size() == 1) {
    const size_t settings = autocast ? 4 : 1;  // device, type, whether, caching
    if (values.size() < settings) return InvalidArgument("`{}` has too few arguments", op);
    const bool* enabled = autocast ? std::get_if<bool>(&values[2]) : nullptr;
    if (autocast && (enabled == nullptr || *enabled))
      return Unsupported("`{}`: automatic mixed precision", Printable(name));
    std::vector<TorchValue> given(values.begin() + static_cast<std::ptrdiff_t>(settings),
                                  values.end());
    QUENCH_ASSIGN_OR_RETURN(std::vector<TorchValue> results, RunSubgraph(*graphs[0], given, depth));
    return MakeList(std::move(results), true);
  }
  return p_.Call("higher_order", op, name, {}, {}, 1);
}

absl::Status ExportReader::RunNode(const Json& node, Env& env, int depth) {
  const std::string target = TextOf(Member(node, "target"));
  const Json* inputs = Member(node, "inputs");
  const Json* outputs = Member(node, "outputs");
  if (target.empty() || inputs == nullptr || outputs == nullptr || !inputs->is_array())
    return InvalidArgument("a node has no target, inputs or outputs");
  std::string domain, op = target;
  constexpr std::string_view kOps = "torch.ops.";
  if (op.starts_with(kOps)) {
    op = op.substr(kOps.size());
    const size_t dot = op.find('.');
    domain = op.substr(0, dot);
    op = dot == std::string::npos ? "" : op.substr(dot + 1);
  } else {  // arithmetic on sizes: _operator.add, math.ceil, torch.sym_max
    domain = "aten";
    op = op.substr(op.rfind('.') + 1);
    if (op.starts_with("sym_")) op = op.substr(4);
    if (op == "truediv") op = "div";
    if (op == "and_" || op == "or_") op = "__" + op.substr(0, op.size() - 1) + "__";
  }
  // Checks of what was true of the example.
  if (op.starts_with("_assert") || op.starts_with("sym_constrain_range")) return absl::OkStatus();
  std::string name = TextOf(Member(node, "name"));
  if (name.empty() && !outputs->empty()) name = NameIn((*outputs)[0]);
  if (domain == "higher_order") {
    QUENCH_ASSIGN_OR_RETURN(const TorchValue value, RunHigherOrder(op, name, *inputs, env, depth));
    return Define(*outputs, value, env);
  }
  std::vector<TorchValue> positional;
  TorchArguments named;
  for (const Json& input : *inputs) {
    const Json* argument = Member(input, "arg");
    if (argument == nullptr)
      return InvalidArgument("`{}`: an argument is missing", Printable(name));
    absl::StatusOr<TorchValue> value = ArgumentOf(*argument, env);
    if (!value.ok()) return Annotate(value.status(), fmt::format("`{}`", Printable(name)));
    const std::string argument_name = TextOf(Member(input, "name"));
    if (argument_name.empty() || !target.starts_with(kOps)) {
      positional.push_back(*std::move(value));
    } else if (!IsNone(*value)) {
      named.emplace_back(argument_name, *std::move(value));
    }
  }
  size_t count = outputs->size();
  if (count == 1 && Member((*outputs)[0], "as_tensors") != nullptr)
    count = (*outputs)[0]["as_tensors"].size();
  const bool is_number = count == 1 && (Member((*outputs)[0], "as_sym_int") != nullptr ||
                                        Member((*outputs)[0], "as_sym_float") != nullptr ||
                                        Member((*outputs)[0], "as_sym_bool") != nullptr);
  if (op.starts_with("item") || op.starts_with("_local_scalar_dense")) {
    const auto* cell = named.empty() ? nullptr : std::get_if<CellPtr>(&named[0].second);
    if (cell == nullptr) return InvalidArgument("`{}`: takes no tensor", Printable(name));
    const bool real = Member((*outputs)[0], "as_sym_float") != nullptr;
    QUENCH_ASSIGN_OR_RETURN(
        const TorchValue value,
        p_.NumberOf(*cell, real ? RuntimeNumber::Kind::kFloat : RuntimeNumber::Kind::kInt));
    return Define(*outputs, value, env);
  }
  QUENCH_ASSIGN_OR_RETURN(
      TorchValue value, p_.Call(domain, op, name, std::move(positional), std::move(named), count));
  if (const auto* cell = std::get_if<CellPtr>(&value); is_number && cell != nullptr) {
    const auto kind = Member((*outputs)[0], "as_sym_int") != nullptr ? RuntimeNumber::Kind::kInt
                      : Member((*outputs)[0], "as_sym_bool") != nullptr
                          ? RuntimeNumber::Kind::kBool
                          : RuntimeNumber::Kind::kFloat;
    QUENCH_ASSIGN_OR_RETURN(value, p_.NumberOf(*cell, kind));
  }
  return Define(*outputs, value, env);
}

absl::Status ExportReader::Run(const Json& graph, Env& env, int depth) {
  if (depth > kMaxGraphNesting)
    return InvalidArgument("subgraphs nest more than {} deep", kMaxGraphNesting);
  const Json* nodes = Member(graph, "nodes");
  if (nodes == nullptr || !nodes->is_array()) return InvalidArgument("a graph has no nodes");
  for (const Json& node : *nodes) QUENCH_RETURN_IF_ERROR(RunNode(node, env, depth + 1));
  return absl::OkStatus();
}

absl::StatusOr<TorchResult> ExportReader::Read() {
  std::string file = "serialized_exported_program.json";
  for (const std::string& name : archive_.Names()) {
    if (name.starts_with("models/") && name.ends_with(".json")) {
      if (file.starts_with("models/"))
        return Unsupported("the archive has several models, `{}` and `{}`", Printable(file),
                           Printable(name));
      file = name;
    }
  }
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes text, archive_.Read(file));
  const Json json = Json::parse(text.text(), nullptr, false);
  const Json* module = Member(json, "graph_module");
  const Json* graph = module == nullptr ? nullptr : Member(*module, "graph");
  const Json* signature = module == nullptr ? nullptr : Member(*module, "signature");
  if (graph == nullptr || signature == nullptr)
    return InvalidArgument("`{}` has no graph that could be read", file);
  QUENCH_RETURN_IF_ERROR(LoadWeights());
  TorchResult result;
  Env env;
  QUENCH_RETURN_IF_ERROR(AddInputs(*graph, *signature, env, result));
  QUENCH_RETURN_IF_ERROR(Run(*graph, env, 0));
  const Json* outputs = Member(*graph, "outputs");
  const Json* specs = Member(*signature, "output_specs");
  if (outputs == nullptr || !outputs->is_array() || specs == nullptr ||
      specs->size() != outputs->size())
    return InvalidArgument("the graph's outputs are not those of its signature");
  for (size_t i = 0; i < outputs->size(); ++i) {
    const Json& output = (*outputs)[i];
    const Json& spec = (*specs)[i];
    if (Member(spec, "user_output") != nullptr) {
      QUENCH_ASSIGN_OR_RETURN(TorchValue value, ArgumentOf(output, env));
      result.outputs.emplace_back(NameIn(output), std::move(value));
    } else if (const Json* mutation = Member(spec, "buffer_mutation")) {
      const std::string name = TextOf(Member(*mutation, "buffer_name"));
      QUENCH_ASSIGN_OR_RETURN(const TorchValue value, ArgumentOf(output, env));
      for (const TorchState& state : result.states) {
        if (state.name != name) continue;
        QUENCH_ASSIGN_OR_RETURN(const Handle handle, p_.HandleOf(value));
        QUENCH_RETURN_IF_ERROR(p_.Assign(state.cell, handle, name));
      }
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<TorchResult> ReadExported(const TorchArchive& archive, const ImportOptions& options,
                                         const std::set<std::string>& written,
                                         TorchProgram& program) {
  return ExportReader(archive, options, written, program).Read();
}

}  // namespace quench::importer
