// The contents of a TorchScript archive: code, modules with their attributes, constants; and the
// model's inputs.
#include <algorithm>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/torch/script_reader.h"

namespace quench::importer {
namespace {

using Kind = ScriptExpression::Kind;
using ListPtr = std::shared_ptr<TorchList>;
using ObjectPtr = std::shared_ptr<TorchObject>;

const ExpressionPtr* TypeArgument(const ExpressionPtr& type) {
  return type != nullptr && type->kind == Kind::kItem ? &type->items[1] : nullptr;
}

}  // namespace

// ---- The archive ----

absl::StatusOr<const ScriptFile*> ScriptReader::FileOf(const std::string& module) {
  std::unique_ptr<ScriptFile>& file = files_[module];
  if (file != nullptr) return file.get();
  std::string path = "code/" + module + ".py";
  std::replace(path.begin() + 5, path.end() - 3, '.', '/');
  file = std::make_unique<ScriptFile>();
  if (!archive_.Has(path)) return file.get();  // of PyTorch's own classes
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes text, archive_.Read(path));
  QUENCH_ASSIGN_OR_RETURN(*file, ParseScript(text.text(), path));
  for (auto& [name, function] : file->functions) function.file = path;
  for (auto& [name, made] : file->classes) {
    for (auto& [method, function] : made.methods) function.file = path;
  }
  return file.get();
}

absl::StatusOr<const ScriptClass*> ScriptReader::ClassOf(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return nullptr;
  QUENCH_ASSIGN_OR_RETURN(const ScriptFile* file, FileOf(name.substr(0, dot)));
  const auto found = file->classes.find(name.substr(dot + 1));
  return found == file->classes.end() ? nullptr : &found->second;
}

absl::StatusOr<const ScriptFunction*> ScriptReader::FunctionOf(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return nullptr;
  QUENCH_ASSIGN_OR_RETURN(const ScriptFile* file, FileOf(name.substr(0, dot)));
  const auto found = file->functions.find(name.substr(dot + 1));
  return found == file->functions.end() ? nullptr : &found->second;
}

absl::StatusOr<std::shared_ptr<const PickleFile>> ScriptReader::LoadPickle(
    const std::string& name) {
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes bytes, archive_.Read(name));
  absl::StatusOr<std::shared_ptr<const PickleFile>> file = ReadPickle(bytes.bytes);
  if (!file.ok()) return Annotate(file.status(), fmt::format("`{}`", name));
  pickles_.push_back(*file);
  return file;
}

absl::StatusOr<TorchValue> ScriptReader::ValueOf(const Pickled& pickled, const std::string& path,
                                                 int depth) {
  if (depth > kMaxPickleDepth)
    return InvalidArgument("values nest more than {} deep", kMaxPickleDepth);
  if (const auto found = values_.find(&pickled); found != values_.end()) return found->second;
  switch (pickled.kind) {
    case Pickled::Kind::kNone:
      return TorchValue();
    case Pickled::Kind::kBool:
      return TorchValue(pickled.number != 0);
    case Pickled::Kind::kInt:
      return TorchValue(pickled.number);
    case Pickled::Kind::kFloat:
      return TorchValue(pickled.real);
    case Pickled::Kind::kText:
      return TorchValue(pickled.text);
    case Pickled::Kind::kList:
    case Pickled::Kind::kTuple: {
      auto list = std::make_shared<TorchList>();
      list->is_tuple = pickled.kind == Pickled::Kind::kTuple;
      values_[&pickled] = list;
      for (size_t i = 0; i < pickled.items.size(); ++i) {
        QUENCH_ASSIGN_OR_RETURN(
            TorchValue item, ValueOf(*pickled.items[i], fmt::format("{}.{}", path, i), depth + 1));
        list->items.push_back(std::move(item));
      }
      return TorchValue(list);
    }
    case Pickled::Kind::kDict: {
      auto dict = std::make_shared<TorchDict>();
      values_[&pickled] = dict;
      for (size_t i = 0; i + 1 < pickled.items.size(); i += 2) {
        QUENCH_ASSIGN_OR_RETURN(TorchValue key, ValueOf(*pickled.items[i], path, depth + 1));
        QUENCH_ASSIGN_OR_RETURN(TorchValue item, ValueOf(*pickled.items[i + 1], path, depth + 1));
        dict->items.emplace_back(std::move(key), std::move(item));
      }
      return TorchValue(dict);
    }
    case Pickled::Kind::kGlobal:
      return TorchValue(TorchName{pickled.text});
    case Pickled::Kind::kObject:
      return ObjectOf(pickled, path, depth);
    case Pickled::Kind::kPersistent:
      break;
  }
  return InvalidArgument("`{}`: there is a storage where a value was expected", Printable(path));
}

absl::StatusOr<TorchValue> ScriptReader::ObjectOf(const Pickled& pickled, const std::string& path,
                                                  int depth) {
  const std::string& callee = pickled.Callee();
  if (IsTensor(pickled)) {
    absl::StatusOr<TorchTensor> tensor =
        ReadTensor(pickled, [&](const std::string& key) -> absl::StatusOr<TorchBytes> {
          return archive_.Read(storages_ + key);
        });
    if (!tensor.ok()) return Annotate(tensor.status(), fmt::format("`{}`", Printable(path)));
    const bool state = written_.contains(path);
    CellPtr cell;
    if (state && IsComplex(tensor->tensor.dtype()))
      return Unsupported("the model writes to `{}`, which is complex", Printable(path));
    if (state) {
      cell = p_.NewCell(-1);
    } else {
      QUENCH_ASSIGN_OR_RETURN(cell, prims_.Dequantized(path, *tensor));
    }
    cell->name = path;
    values_[&pickled] = cell;
    if (storages_ == "data/") states_.push_back({path, cell, 0, tensor->tensor});
    return TorchValue(cell);
  }
  const std::vector<const Pickled*>& arguments = pickled.items[1]->items;
  if (callee.starts_with("torch.jit._pickle.") || callee == "torch.Size") {
    if (arguments.empty()) return InvalidArgument("`{}` has no values", Printable(callee));
    return ValueOf(*arguments[0], path, depth + 1);
  }
  if (callee == "torch.device") return TorchValue(std::string("cpu"));
  if (!callee.starts_with("__torch__."))
    return InvalidArgument("`{}`: a value is made by `{}`, which is not read", Printable(path),
                           Printable(callee));
  auto object = std::make_shared<TorchObject>();
  object->type = callee;
  object->path = path;
  values_[&pickled] = object;
  if (pickled.state != nullptr) QUENCH_RETURN_IF_ERROR(SetState(object, *pickled.state, depth + 1));
  return TorchValue(object);
}

// Parameters of quantized convolutions in PyTorch's packed form: a version, numbers of the window, tensors.
static absl::StatusOr<std::vector<TorchValue>> UnpackedConvolution(
    const std::vector<TorchValue>& state) {
  const auto items = [](const TorchValue& value) {
    const auto* list = std::get_if<ListPtr>(&value);
    return list == nullptr ? std::vector<TorchValue>{} : (*list)->items;
  };
  if (state.size() != 3) return Unsupported("packed parameters of an unknown form");
  std::vector<TorchValue> tensors = items(state[2]);
  const std::vector<TorchValue> numbers = items(state[1]);
  // [spatial axes, stride..., padding..., dilation..., output padding..., groups, flags]
  if (tensors.size() < 3 || numbers.empty())
    return Unsupported("packed parameters of an unknown form");
  const auto* spatial = std::get_if<int64_t>(&numbers[0]);
  if (spatial == nullptr || *spatial < 1 || *spatial > 3 ||
      numbers.size() < static_cast<size_t>(4 * *spatial + 2))
    return Unsupported("packed parameters of an unknown form");
  const auto part = [&](int64_t index) {
    const auto first = numbers.begin() + 1 + index * *spatial;
    return MakeList({first, first + *spatial});
  };
  return std::vector<TorchValue>{tensors[1], tensors[2],
                                 part(0),    part(1),
                                 part(2),    numbers[static_cast<size_t>(1 + 4 * *spatial)]};
}

absl::Status ScriptReader::SetState(const ObjectPtr& object, const Pickled& state, int depth) {
  QUENCH_ASSIGN_OR_RETURN(const ScriptClass* made, ClassOf(object->type));
  const bool own = object->type.starts_with("__torch__.torch.classes.");
  if (!own && made != nullptr && made->methods.contains("__setstate__")) {
    QUENCH_ASSIGN_OR_RETURN(const TorchValue value, ValueOf(state, object->path, depth));
    return CallMethod(object, "__setstate__", {value}, {}).status();
  }
  if (!own && state.Is(Pickled::Kind::kDict)) {
    for (size_t i = 0; i + 1 < state.items.size(); i += 2) {
      const std::string& name = state.items[i]->text;
      const std::string path = object->path.empty() ? name : object->path + "." + name;
      QUENCH_ASSIGN_OR_RETURN(TorchValue value, ValueOf(*state.items[i + 1], path, depth));
      if (name == "training") value = false;  // as `eval()` leaves it
      object->attributes[name] = std::move(value);
    }
    return absl::OkStatus();
  }
  QUENCH_ASSIGN_OR_RETURN(const TorchValue value, ValueOf(state, object->path, depth));
  const auto* list = std::get_if<ListPtr>(&value);
  object->state = list == nullptr ? std::vector<TorchValue>{value} : (*list)->items;
  if (object->type.find("Conv") != std::string::npos &&
      object->type.find("PackedParams") != std::string::npos) {
    QUENCH_ASSIGN_OR_RETURN(object->state, UnpackedConvolution(object->state));
  } else if (object->state.size() == 1) {
    if (const auto* inner = std::get_if<ListPtr>(&object->state[0])) {
      const std::vector<TorchValue> items = (*inner)->items;
      object->state = items;
    }
  }
  return absl::OkStatus();
}

// ---- The model's interface ----

// Tensors and numbers are inputs; tuples of them several, `name_0`, `name_1`.
absl::StatusOr<TorchValue> ScriptReader::InputOf(
    const std::string& name, const ExpressionPtr& type, std::vector<TorchInput>& inputs,
    std::vector<std::pair<size_t, TorchValue>>& places) {
  const std::string kind = ScriptTypeName(type);
  TorchInput input;
  input.declared.name = name;
  const auto add = [&](TorchValue place) {
    places.emplace_back(inputs.size(), place);
    inputs.push_back(std::move(input));
    return place;
  };
  if (kind == "Tensor" || kind.empty()) {
    input.declared.type = Type::Tensor(
        options_.default_dtype == DataType::kUndefined ? DataType::kF32 : options_.default_dtype,
        {});
    return add(p_.NewCell(-1));
  }
  const std::pair<const char*, RuntimeNumber::Kind> numbers[] = {
      {"int", RuntimeNumber::Kind::kInt},
      {"float", RuntimeNumber::Kind::kFloat},
      {"bool", RuntimeNumber::Kind::kBool}};
  for (const auto& [number, which] : numbers) {
    if (kind != number) continue;
    input.declared.type = Type::Tensor(which == RuntimeNumber::Kind::kInt    ? DataType::kI64
                                       : which == RuntimeNumber::Kind::kBool ? DataType::kBool
                                                                             : DataType::kF32,
                                       {});
    input.declared.dims.emplace();
    return add(RuntimeNumber{-1, which});
  }
  const ExpressionPtr* inner = TypeArgument(type);
  if (kind == "Optional" && inner != nullptr) {
    const bool given = options_.shapes.contains(name) || options_.dtypes.contains(name);
    if (!given) return TorchValue();
    return InputOf(name, *inner, inputs, places);
  }
  if (kind == "Tuple" && inner != nullptr) {
    std::vector<ExpressionPtr> types = {*inner};
    if ((*inner)->kind == Kind::kTuple) types = (*inner)->items;
    std::vector<TorchValue> items;
    for (size_t i = 0; i < types.size(); ++i) {
      QUENCH_ASSIGN_OR_RETURN(TorchValue item,
                              InputOf(fmt::format("{}_{}", name, i), types[i], inputs, places));
      items.push_back(std::move(item));
    }
    return MakeList(std::move(items), true);
  }
  return Unsupported(
      "input `{}` of forward is of the type `{}`; tensors, numbers, and tuples of these are read",
      Printable(name), kind.empty() ? "?" : Printable(kind));
}

// Gives what stands in for an input the input itself.
static TorchValue Placed(const TorchValue& value, const std::vector<TorchInput>& inputs,
                         size_t& next) {
  if (const auto* cell = std::get_if<CellPtr>(&value)) {
    (*cell)->handle = inputs[next++].handle;
    return value;
  }
  if (const auto* number = std::get_if<RuntimeNumber>(&value))
    return RuntimeNumber{inputs[next++].handle, number->kind};
  if (const auto* list = std::get_if<ListPtr>(&value)) {
    for (TorchValue& item : (*list)->items) item = Placed(item, inputs, next);
  }
  return value;
}

// A trace writes the numbers of its operators as such tensors.
absl::Status ScriptReader::MarkNumber(const TorchValue& constant) {
  const auto* cell = std::get_if<CellPtr>(&constant);
  if (cell == nullptr) return absl::OkStatus();
  QUENCH_ASSIGN_OR_RETURN(const Type type, p_.TypeOf(*cell));
  (*cell)->is_number = type.ranked && type.rank() == 0 &&
                       (type.dtype == DataType::kF64 || type.dtype == DataType::kI64);
  return absl::OkStatus();
}

absl::StatusOr<TorchResult> ScriptReader::Read() {
  storages_ = "constants/";
  if (archive_.Has("constants.pkl")) {
    QUENCH_ASSIGN_OR_RETURN(const auto pickle, LoadPickle("constants.pkl"));
    for (size_t i = 0; i < pickle->root().items.size(); ++i) {
      QUENCH_ASSIGN_OR_RETURN(
          TorchValue value, ValueOf(*pickle->root().items[i], fmt::format("CONSTANTS.c{}", i), 0));
      QUENCH_RETURN_IF_ERROR(MarkNumber(value));
      constants_.push_back(std::move(value));
    }
  }
  storages_ = "data/";
  QUENCH_ASSIGN_OR_RETURN(const auto pickle, LoadPickle("data.pkl"));
  QUENCH_ASSIGN_OR_RETURN(const TorchValue root, ValueOf(pickle->root(), "", 0));
  const auto* model = std::get_if<ObjectPtr>(&root);
  if (model == nullptr) return InvalidArgument("`data.pkl` holds no module");
  QUENCH_ASSIGN_OR_RETURN(const ScriptClass* made, ClassOf((*model)->type));
  if (made == nullptr)
    return InvalidArgument("the archive lacks the code of `{}`", Printable((*model)->type));
  const auto forward = made->methods.find("forward");
  if (forward == made->methods.end()) {
    std::string names;
    for (const auto& [name, method] : made->methods)
      names += fmt::format("{}`{}`", names.empty() ? "" : ", ", name);
    return InvalidArgument(
        "the module has no method `forward`, which is what is computed; it has {}",
        names.empty() ? "none" : names);
  }
  std::vector<TorchInput> inputs;
  std::vector<std::pair<size_t, TorchValue>> places;
  std::vector<TorchValue> arguments;
  StatusCollector problems;
  for (size_t i = 1; i < forward->second.parameters.size(); ++i) {
    const ScriptParameter& parameter = forward->second.parameters[i];
    const bool given = options_.shapes.contains(parameter.name);
    if (parameter.fallback != nullptr && !given) {  // as it stands in the code
      ScriptFrame empty;
      QUENCH_ASSIGN_OR_RETURN(TorchValue value, Evaluate(parameter.fallback, empty));
      arguments.push_back(std::move(value));
      continue;
    }
    absl::StatusOr<TorchValue> value = InputOf(parameter.name, parameter.type, inputs, places);
    problems.Add(value.status());
    arguments.push_back(value.ok() ? *std::move(value) : TorchValue());
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  for (const TorchState& state : states_) {
    if (!written_.contains(state.name)) continue;
    TorchInput input;
    input.declared.name = state.name;
    input.declared.type = Type::Tensor(state.initial.dtype(), {});
    input.declared.dims.emplace();
    for (const int64_t size : state.initial.dims()) input.declared.dims->push_back({size, ""});
    inputs.push_back(std::move(input));
  }
  QUENCH_RETURN_IF_ERROR(AddTorchInputs(options_, p_, inputs));
  size_t next = 0;
  for (TorchValue& argument : arguments) argument = Placed(argument, inputs, next);
  for (TorchState& state : states_) {
    if (written_.contains(state.name)) state.cell->handle = inputs[next++].handle;
  }
  arguments.insert(arguments.begin(), root);
  TorchResult result;
  absl::StatusOr<TorchValue> output = CallFunction(forward->second, std::move(arguments), {}, "");
  if (absl::IsAborted(output.status())) return InvalidArgument("{}", MessageOf(output.status()));
  QUENCH_RETURN_IF_ERROR(output.status());
  result.outputs.emplace_back("output", *std::move(output));
  result.states = std::move(states_);
  return result;
}

absl::StatusOr<TorchResult> ReadScript(const TorchArchive& archive, const ImportOptions& options,
                                       const std::set<std::string>& written,
                                       TorchProgram& program) {
  return ScriptReader(archive, options, written, program).Read();
}

}  // namespace quench::importer
