// TorchScript: the model's `forward` is run on what is known now, and what is not becomes nodes.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/torch/model.h"
#include "services/importer/torch/script_ast.h"
#include "services/importer/torch/script_prims.h"

namespace quench::importer {
namespace {

using Kind = ScriptExpression::Kind;
using ListPtr = std::shared_ptr<TorchList>;
using ObjectPtr = std::shared_ptr<TorchObject>;

constexpr int kMaxCalls = 100;             // within one another
constexpr int64_t kMaxSteps = 20'000'000;  // statements, those of loops each time
constexpr int64_t kMaxTrips = 100'000;     // of a loop that is known

struct Frame {
  std::map<std::string, TorchValue> variables;
  std::string path;  // of the module whose code runs
  std::string file;
};

enum class Flow : uint8_t { kNext, kReturn };

std::string TypeName(const ExpressionPtr& type) {
  if (type == nullptr) return "";
  if (type->kind == Kind::kName) return type->text;
  if (type->kind == Kind::kItem) return TypeName(type->items[0]);
  return "";
}

const ExpressionPtr* TypeArgument(const ExpressionPtr& type) {
  return type != nullptr && type->kind == Kind::kItem ? &type->items[1] : nullptr;
}

void AddTargets(const std::vector<ScriptStatement>& block, std::set<std::string>& names) {
  for (const ScriptStatement& statement : block) {
    for (const ExpressionPtr& target : statement.targets) {
      if (target->kind == Kind::kName) names.insert(target->text);
    }
    AddTargets(statement.body, names);
    AddTargets(statement.other, names);
  }
}

class ScriptReader {
 public:
  ScriptReader(const TorchArchive& archive, const ImportOptions& options,
               const std::set<std::string>& written, TorchProgram& program)
      : archive_(archive), options_(options), written_(written), p_(program),
        prims_(program, options) {}

  absl::StatusOr<TorchResult> Read();

 private:
  // ---- The archive ----
  absl::StatusOr<const ScriptFile*> FileOf(const std::string& module);
  absl::StatusOr<const ScriptClass*> ClassOf(const std::string& name);
  absl::StatusOr<const ScriptFunction*> FunctionOf(const std::string& name);
  absl::StatusOr<std::shared_ptr<const PickleFile>> LoadPickle(const std::string& name);
  absl::StatusOr<TorchValue> ValueOf(const Pickled& pickled, const std::string& path, int depth);
  absl::StatusOr<TorchValue> ObjectOf(const Pickled& pickled, const std::string& path, int depth);
  absl::Status SetState(const ObjectPtr& object, const Pickled& state, int depth);

  // ---- The model's interface ----
  absl::StatusOr<TorchValue> InputOf(const std::string& name, const ExpressionPtr& type,
                                     std::vector<TorchInput>& inputs,
                                     std::vector<std::pair<size_t, TorchValue>>& places);

  // ---- Running ----
  absl::StatusOr<TorchValue> CallFunction(const ScriptFunction& function,
                                          std::vector<TorchValue> positional, TorchArguments named,
                                          const std::string& path);
  absl::StatusOr<Flow> Run(const std::vector<ScriptStatement>& block, Frame& frame,
                           TorchValue& result);
  absl::StatusOr<Flow> RunStatement(const ScriptStatement& statement, Frame& frame,
                                    TorchValue& result);
  absl::Status Assign(const ScriptStatement& statement, Frame& frame);
  absl::Status AssignTo(const ExpressionPtr& target, const TorchValue& value, Frame& frame);
  absl::StatusOr<Flow> RunIf(const ScriptStatement& statement, Frame& frame, TorchValue& result);
  absl::Status RunLoop(const ScriptStatement& statement, Frame& frame, TorchValue& result);
  absl::Status RunRuntimeLoop(const ScriptStatement& statement, const TorchValue& count,
                              const TorchValue& condition, Frame& frame);
  absl::StatusOr<TorchValue> Evaluate(const ExpressionPtr& expression, Frame& frame);
  absl::StatusOr<TorchValue> EvaluateCall(const ScriptExpression& call, Frame& frame);
  absl::StatusOr<TorchValue> CallNamed(const std::string& name, const ScriptExpression& call,
                                       std::vector<TorchValue> arguments, TorchArguments named,
                                       Frame& frame);
  absl::StatusOr<TorchValue> CallQualified(const std::string& name, std::vector<TorchValue> arguments,
                                           TorchArguments named, Frame& frame);
  absl::StatusOr<TorchValue> CallMethod(const ObjectPtr& object, const std::string& method,
                                        std::vector<TorchValue> arguments, TorchArguments named);
  absl::StatusOr<TorchValue> AttributeOf(const TorchValue& value, const std::string& name);
  // "torch.add" of a chain of attributes that begins with one of the reserved names.
  static std::string DottedName(const ScriptExpression& expression, const Frame& frame);
  std::string NodeName(const Frame& frame, const std::string& op) const {
    return frame.path.empty() ? op : frame.path + "/" + op;
  }
  absl::Status Where(const absl::Status& status, const Frame& frame, int line) const;

  const TorchArchive& archive_;
  const ImportOptions& options_;
  const std::set<std::string>& written_;
  TorchProgram& p_;
  ScriptPrims prims_;
  std::map<std::string, std::unique_ptr<ScriptFile>> files_;
  std::vector<std::shared_ptr<const PickleFile>> pickles_;
  std::unordered_map<const Pickled*, TorchValue> values_;
  std::string storages_ = "data/";
  std::vector<TorchValue> constants_;
  std::vector<TorchState> states_;  // tensors of modules, by attribute
  int calls_ = 0;
  int64_t steps_ = 0;
};

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

absl::StatusOr<std::shared_ptr<const PickleFile>> ScriptReader::LoadPickle(const std::string& name) {
  QUENCH_ASSIGN_OR_RETURN(const TorchBytes bytes, archive_.Read(name));
  absl::StatusOr<std::shared_ptr<const PickleFile>> file = ReadPickle(bytes.bytes);
  if (!file.ok()) return Annotate(file.status(), fmt::format("`{}`", name));
  pickles_.push_back(*file);
  return file;
}

absl::StatusOr<TorchValue> ScriptReader::ValueOf(const Pickled& pickled, const std::string& path,
                                                 int depth) {
  if (depth > kMaxPickleDepth) return InvalidArgument("values nest more than {} deep", kMaxPickleDepth);
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
        QUENCH_ASSIGN_OR_RETURN(TorchValue item, ValueOf(*pickled.items[i], fmt::format("{}.{}", path, i), depth + 1));
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
  return InvalidArgument("`{}`: a storage stands where a value is wanted", Printable(path));
}

absl::StatusOr<TorchValue> ScriptReader::ObjectOf(const Pickled& pickled, const std::string& path,
                                                  int depth) {
  const std::string& callee = pickled.Callee();
  if (IsTensor(pickled)) {
    absl::StatusOr<TorchTensor> tensor = ReadTensor(
        pickled, [&](const std::string& key) -> absl::StatusOr<TorchBytes> {
          return archive_.Read(storages_ + key);
        });
    if (!tensor.ok()) return Annotate(tensor.status(), fmt::format("`{}`", Printable(path)));
    const bool state = written_.contains(path);
    CellPtr cell;
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
    return InvalidArgument("`{}`: a value is made by `{}`, which is not read", Printable(path), Printable(callee));
  auto object = std::make_shared<TorchObject>();
  object->type = callee;
  object->path = path;
  values_[&pickled] = object;
  if (pickled.state != nullptr) QUENCH_RETURN_IF_ERROR(SetState(object, *pickled.state, depth + 1));
  return TorchValue(object);
}

// What PyTorch packs the parameters of quantized convolutions into: a version, numbers of the window, tensors.
static absl::StatusOr<std::vector<TorchValue>> UnpackedConvolution(const std::vector<TorchValue>& state) {
  const auto items = [](const TorchValue& value) {
    const auto* list = std::get_if<ListPtr>(&value);
    return list == nullptr ? std::vector<TorchValue>{} : (*list)->items;
  };
  if (state.size() != 3) return Unsupported("packed parameters of an unknown form");
  std::vector<TorchValue> tensors = items(state[2]);
  const std::vector<TorchValue> numbers = items(state[1]);
  // [spatial axes, stride..., padding..., dilation..., output padding..., groups, flags]
  if (tensors.size() < 3 || numbers.empty()) return Unsupported("packed parameters of an unknown form");
  const auto* spatial = std::get_if<int64_t>(&numbers[0]);
  if (spatial == nullptr || *spatial < 1 || *spatial > 3 || numbers.size() < static_cast<size_t>(4 * *spatial + 2))
    return Unsupported("packed parameters of an unknown form");
  const auto part = [&](int64_t index) {
    const auto first = numbers.begin() + 1 + index * *spatial;
    return MakeList({first, first + *spatial});
  };
  return std::vector<TorchValue>{tensors[1], tensors[2], part(0), part(1), part(2),
                                 numbers[static_cast<size_t>(1 + 4 * *spatial)]};
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
  if (object->type.find("Conv") != std::string::npos && object->type.find("PackedParams") != std::string::npos) {
    QUENCH_ASSIGN_OR_RETURN(object->state, UnpackedConvolution(object->state));
  } else if (object->state.size() == 1) {
    if (const auto* inner = std::get_if<ListPtr>(&object->state[0])) {
      const std::vector<TorchValue> items = (*inner)->items;
      object->state = items;
    }
  }
  return absl::OkStatus();
}

// ---- Running ----

absl::Status ScriptReader::Where(const absl::Status& status, const Frame& frame, int line) const {
  if (status.ok() || absl::IsCancelled(status) || status.message().find(" line ") != std::string_view::npos)
    return status;
  return Annotate(status, fmt::format("`{}` line {}", frame.file, line));
}

std::string ScriptReader::DottedName(const ScriptExpression& expression, const Frame& frame) {
  if (expression.kind == Kind::kName) {
    const std::string& name = expression.text;
    const bool reserved = name == "torch" || name == "ops" || name == "__torch__" || name == "CONSTANTS";
    return reserved && !frame.variables.contains(name) ? name : "";
  }
  if (expression.kind != Kind::kAttribute) return "";
  const std::string base = DottedName(*expression.items[0], frame);
  return base.empty() ? "" : base + "." + expression.text;
}

absl::StatusOr<TorchValue> ScriptReader::AttributeOf(const TorchValue& value, const std::string& name) {
  const auto* object = std::get_if<ObjectPtr>(&value);
  if (object == nullptr) return InvalidArgument("`.{}` is asked of what is no object", Printable(name));
  const auto found = (*object)->attributes.find(name);
  if (found != (*object)->attributes.end()) return found->second;
  QUENCH_ASSIGN_OR_RETURN(const ScriptClass* made, ClassOf((*object)->type));
  if (made != nullptr) {
    if (const auto constant = made->constants.find(name); constant != made->constants.end()) {
      Frame empty;
      return Evaluate(constant->second, empty);
    }
  }
  return InvalidArgument("`{}` has no attribute `{}`", Printable((*object)->type), Printable(name));
}

absl::StatusOr<TorchValue> ScriptReader::Evaluate(const ExpressionPtr& expression, Frame& frame) {
  const ScriptExpression& e = *expression;
  switch (e.kind) {
    case Kind::kNone:
      return TorchValue();
    case Kind::kBool:
      return TorchValue(e.integer != 0);
    case Kind::kInt:
      return TorchValue(e.integer);
    case Kind::kFloat:
      return TorchValue(e.real);
    case Kind::kText:
      return TorchValue(e.text);
    case Kind::kName: {
      const auto found = frame.variables.find(e.text);
      if (found != frame.variables.end()) return found->second;
      return InvalidArgument("`{}` is not defined", Printable(e.text));
    }
    case Kind::kMinus: {
      QUENCH_ASSIGN_OR_RETURN(TorchValue value, Evaluate(e.items[0], frame));
      if (const auto* integer = std::get_if<int64_t>(&value))
        return TorchValue(*integer == INT64_MIN ? *integer : -*integer);
      if (const auto* real = std::get_if<double>(&value)) return TorchValue(-*real);
      return prims_.Call("aten", "neg", NodeName(frame, "neg"), {value}, {});
    }
    case Kind::kList:
    case Kind::kTuple: {
      std::vector<TorchValue> items;
      for (const ExpressionPtr& item : e.items) {
        QUENCH_ASSIGN_OR_RETURN(TorchValue value, Evaluate(item, frame));
        items.push_back(std::move(value));
      }
      return MakeList(std::move(items), e.kind == Kind::kTuple);
    }
    case Kind::kDict: {
      auto dict = std::make_shared<TorchDict>();
      for (size_t i = 0; i + 1 < e.items.size(); i += 2) {
        QUENCH_ASSIGN_OR_RETURN(TorchValue key, Evaluate(e.items[i], frame));
        QUENCH_ASSIGN_OR_RETURN(TorchValue value, Evaluate(e.items[i + 1], frame));
        dict->items.emplace_back(std::move(key), std::move(value));
      }
      return TorchValue(dict);
    }
    case Kind::kItem: {
      QUENCH_ASSIGN_OR_RETURN(const TorchValue container, Evaluate(e.items[0], frame));
      QUENCH_ASSIGN_OR_RETURN(const TorchValue key, Evaluate(e.items[1], frame));
      return prims_.Item(container, key);
    }
    case Kind::kAttribute: {
      const std::string dotted = DottedName(e, frame);
      constexpr std::string_view kConstants = "CONSTANTS.c";
      if (dotted.starts_with(kConstants)) {
        const size_t index = static_cast<size_t>(std::atoll(dotted.c_str() + kConstants.size()));
        if (index >= constants_.size()) return InvalidArgument("there is no constant `{}`", Printable(dotted));
        return constants_[index];
      }
      if (!dotted.empty()) return TorchValue(TorchName{dotted});
      QUENCH_ASSIGN_OR_RETURN(const TorchValue value, Evaluate(e.items[0], frame));
      return AttributeOf(value, e.text);
    }
    case Kind::kCall: {
      absl::StatusOr<TorchValue> value = EvaluateCall(e, frame);
      if (!value.ok()) return Where(value.status(), frame, e.line);
      return value;
    }
  }
  return Internal("an expression of no kind");
}

absl::StatusOr<TorchValue> ScriptReader::EvaluateCall(const ScriptExpression& call, Frame& frame) {
  const ScriptExpression& callee = *call.items[0];
  // The first argument of these is a type.
  const bool typed = callee.kind == Kind::kName &&
                     (callee.text == "annotate" || callee.text == "unchecked_cast" || callee.text == "uninitialized");
  const size_t first_named = call.items.size() - call.names.size();
  std::vector<TorchValue> positional;
  TorchArguments named;
  for (size_t i = typed ? 2 : 1; i < call.items.size(); ++i) {
    const bool is_type = callee.kind == Kind::kName && callee.text == "isinstance" && i == 2;
    if (is_type) continue;
    QUENCH_ASSIGN_OR_RETURN(TorchValue value, Evaluate(call.items[i], frame));
    if (i < first_named) {
      positional.push_back(std::move(value));
    } else {
      named.emplace_back(call.names[i - first_named], std::move(value));
    }
  }
  if (callee.kind == Kind::kName)
    return CallNamed(callee.text, call, std::move(positional), std::move(named), frame);
  const std::string dotted = DottedName(callee, frame);
  if (!dotted.empty()) return CallQualified(dotted, std::move(positional), std::move(named), frame);
  if (callee.kind != Kind::kAttribute) return InvalidArgument("a call of what is no function");
  QUENCH_ASSIGN_OR_RETURN(const TorchValue self, Evaluate(callee.items[0], frame));
  const auto* object = std::get_if<ObjectPtr>(&self);
  if (object == nullptr) return InvalidArgument("`.{}` is called on what is no object", Printable(callee.text));
  return CallMethod(*object, callee.text, std::move(positional), std::move(named));
}

absl::StatusOr<TorchValue> ScriptReader::CallNamed(const std::string& name, const ScriptExpression& call,
                                                   std::vector<TorchValue> arguments,
                                                   TorchArguments named, Frame& frame) {
  if (name == "uninitialized") return TorchValue(TorchName{"uninitialized"});
  if (const auto found = frame.variables.find(name); found != frame.variables.end()) {
    const auto* function = std::get_if<TorchName>(&found->second);
    if (function == nullptr) return InvalidArgument("`{}` is called and is no function", Printable(name));
    return CallQualified(function->text, std::move(arguments), std::move(named), frame);
  }
  if (arguments.empty()) return InvalidArgument("`{}` is called without a value", Printable(name));
  if (name == "annotate" || name == "unchecked_cast") return arguments[0];
  if (name == "int") return prims_.ToNumber(arguments[0], RuntimeNumber::Kind::kInt);
  if (name == "float") return prims_.ToNumber(arguments[0], RuntimeNumber::Kind::kFloat);
  if (name == "bool") return prims_.ToNumber(arguments[0], RuntimeNumber::Kind::kBool);
  if (name == "str") return prims_.Call("aten", "str", name, std::move(arguments), {});
  if (name == "getattr" && arguments.size() == 2) {
    const auto* attribute = std::get_if<std::string>(&arguments[1]);
    if (attribute != nullptr) return AttributeOf(arguments[0], *attribute);
  }
  if (name == "isinstance" && call.items.size() == 3) {
    const std::string type = TypeName(call.items[2]);
    const TorchValue& value = arguments[0];
    const bool is = type == "Tensor" ? std::holds_alternative<CellPtr>(value)
                    : type == "int"  ? std::holds_alternative<int64_t>(value)
                    : type == "float" ? std::holds_alternative<double>(value)
                    : type == "bool"  ? std::holds_alternative<bool>(value)
                    : type == "str"   ? std::holds_alternative<std::string>(value)
                    : type == "NoneType" ? IsNone(value)
                    : type == "List" || type == "Tuple" ? std::holds_alternative<ListPtr>(value)
                                                        : false;
    return TorchValue(is);
  }
  return Unsupported("a call of `{}`", Printable(name));
}

absl::StatusOr<TorchValue> ScriptReader::CallQualified(const std::string& name,
                                                       std::vector<TorchValue> arguments,
                                                       TorchArguments named, Frame& frame) {
  if (name.starts_with("torch.")) {
    const std::string op = name.substr(6);
    return prims_.Call("aten", op, NodeName(frame, op), std::move(arguments), std::move(named));
  }
  if (name.starts_with("ops.")) {
    const size_t dot = name.find('.', 4);
    if (dot == std::string::npos) return InvalidArgument("`{}` is no operator", Printable(name));
    const std::string op = name.substr(dot + 1);
    return prims_.Call(name.substr(4, dot - 4), op, NodeName(frame, op), std::move(arguments), std::move(named));
  }
  constexpr std::string_view kNew = ".__new__";
  if (name.ends_with(kNew)) {
    auto object = std::make_shared<TorchObject>();
    object->type = name.substr(0, name.size() - kNew.size());
    object->path = frame.path;
    return TorchValue(object);
  }
  QUENCH_ASSIGN_OR_RETURN(const ScriptFunction* function, FunctionOf(name));
  if (function != nullptr)
    return CallFunction(*function, std::move(arguments), std::move(named), frame.path);
  QUENCH_ASSIGN_OR_RETURN(const ScriptClass* made, ClassOf(name));
  if (made != nullptr && made->is_named_tuple && named.empty() && arguments.size() == made->fields.size()) {
    auto tuple = std::make_shared<TorchObject>();
    tuple->type = name;
    for (size_t i = 0; i < arguments.size(); ++i) tuple->attributes[made->fields[i]] = arguments[i];
    tuple->state = std::move(arguments);
    return TorchValue(tuple);
  }
  return Unsupported("a call of `{}`, whose code the archive lacks", Printable(name));
}

absl::StatusOr<TorchValue> ScriptReader::CallMethod(const ObjectPtr& object, const std::string& method,
                                                    std::vector<TorchValue> arguments,
                                                    TorchArguments named) {
  QUENCH_ASSIGN_OR_RETURN(const ScriptClass* made, ClassOf(object->type));
  if (made == nullptr || !made->methods.contains(method))
    return InvalidArgument("`{}` has no method `{}`", Printable(object->type), Printable(method));
  arguments.insert(arguments.begin(), object);
  return CallFunction(made->methods.at(method), std::move(arguments), std::move(named), object->path);
}

absl::StatusOr<TorchValue> ScriptReader::CallFunction(const ScriptFunction& function,
                                                      std::vector<TorchValue> positional,
                                                      TorchArguments named, const std::string& path) {
  if (calls_ >= kMaxCalls) return InvalidArgument("calls nest more than {} deep", kMaxCalls);
  if (positional.size() > function.parameters.size())
    return InvalidArgument("`{}` takes {} arguments, {} are given", function.name, function.parameters.size(), positional.size());
  Frame frame;
  frame.path = path;
  frame.file = function.file;
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const ScriptParameter& parameter = function.parameters[i];
    const TorchValue* given = FindArgument(named, parameter.name);
    if (i < positional.size()) {
      frame.variables[parameter.name] = std::move(positional[i]);
    } else if (given != nullptr) {
      frame.variables[parameter.name] = *given;
    } else if (parameter.fallback != nullptr) {
      QUENCH_ASSIGN_OR_RETURN(frame.variables[parameter.name], Evaluate(parameter.fallback, frame));
    } else {
      return InvalidArgument("`{}` is called without `{}`", function.name, parameter.name);
    }
  }
  ++calls_;
  TorchValue result;
  const absl::StatusOr<Flow> flow = Run(function.body, frame, result);
  --calls_;
  QUENCH_RETURN_IF_ERROR(flow.status());
  return result;
}

absl::StatusOr<Flow> ScriptReader::Run(const std::vector<ScriptStatement>& block, Frame& frame,
                                       TorchValue& result) {
  for (const ScriptStatement& statement : block) {
    QUENCH_RETURN_IF_ERROR(p_.context().Check());
    if (++steps_ > kMaxSteps)
      return absl::ResourceExhaustedError(fmt::format("the model's code takes more than {} steps", kMaxSteps));
    absl::StatusOr<Flow> flow = RunStatement(statement, frame, result);
    if (!flow.ok()) return Where(flow.status(), frame, statement.line);
    if (*flow == Flow::kReturn) return Flow::kReturn;
  }
  return Flow::kNext;
}

absl::StatusOr<Flow> ScriptReader::RunStatement(const ScriptStatement& statement, Frame& frame,
                                                TorchValue& result) {
  switch (statement.kind) {
    case ScriptStatement::Kind::kPass:
      return Flow::kNext;
    case ScriptStatement::Kind::kCall:
      QUENCH_RETURN_IF_ERROR(Evaluate(statement.value, frame).status());
      return Flow::kNext;
    case ScriptStatement::Kind::kAssign:
      QUENCH_RETURN_IF_ERROR(Assign(statement, frame));
      return Flow::kNext;
    case ScriptStatement::Kind::kReturn:
      if (statement.value != nullptr) {
        QUENCH_ASSIGN_OR_RETURN(result, Evaluate(statement.value, frame));
      }
      return Flow::kReturn;
    case ScriptStatement::Kind::kIf:
      return RunIf(statement, frame, result);
    case ScriptStatement::Kind::kFor:
    case ScriptStatement::Kind::kWhile:
      QUENCH_RETURN_IF_ERROR(RunLoop(statement, frame, result));
      return Flow::kNext;
  }
  return Internal("a statement of no kind");
}

absl::Status ScriptReader::AssignTo(const ExpressionPtr& target, const TorchValue& value, Frame& frame) {
  if (target->kind == Kind::kName) {
    frame.variables[target->text] = value;
    return absl::OkStatus();
  }
  if (target->kind != Kind::kAttribute) return Unsupported("an assignment to what is no variable");
  QUENCH_ASSIGN_OR_RETURN(const TorchValue owner, Evaluate(target->items[0], frame));
  const auto* object = std::get_if<ObjectPtr>(&owner);
  if (object == nullptr) return InvalidArgument("`.{}` is set of what is no object", Printable(target->text));
  TorchValue& attribute = (*object)->attributes[target->text];
  const auto* old = std::get_if<CellPtr>(&attribute);
  const auto* cell = std::get_if<CellPtr>(&value);
  // A tensor of a module that changes is a state of the model.
  if (old != nullptr && cell != nullptr && !(*old)->name.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const Handle handle, p_.Read(*cell));
    return p_.Assign(*old, handle, (*old)->name);
  }
  if (p_.in_body()) return Unsupported("an attribute changes in a branch or loop that only a run decides about");
  attribute = value;
  return absl::OkStatus();
}

absl::Status ScriptReader::Assign(const ScriptStatement& statement, Frame& frame) {
  QUENCH_ASSIGN_OR_RETURN(const TorchValue value, Evaluate(statement.value, frame));
  if (!statement.unpacks) return AssignTo(statement.targets[0], value, frame);
  std::vector<TorchValue> items;
  if (const auto* list = std::get_if<ListPtr>(&value)) items = (*list)->items;
  if (const auto* object = std::get_if<ObjectPtr>(&value)) items = (*object)->state;
  if (items.size() != statement.targets.size())
    return InvalidArgument("{} values are unpacked into {} names", items.size(), statement.targets.size());
  for (size_t i = 0; i < items.size(); ++i)
    QUENCH_RETURN_IF_ERROR(AssignTo(statement.targets[i], items[i], frame));
  return absl::OkStatus();
}

absl::StatusOr<Flow> ScriptReader::RunIf(const ScriptStatement& statement, Frame& frame, TorchValue& result) {
  QUENCH_ASSIGN_OR_RETURN(TorchValue condition, Evaluate(statement.value, frame));
  QUENCH_ASSIGN_OR_RETURN(condition, prims_.ToNumber(condition, RuntimeNumber::Kind::kBool));
  if (const auto* known = std::get_if<bool>(&condition))
    return Run(*known ? statement.body : statement.other, frame, result);
  std::set<std::string> assigned;
  AddTargets(statement.body, assigned);
  AddTargets(statement.other, assigned);
  const std::vector<std::string> names(assigned.begin(), assigned.end());
  const auto branch = [&](const std::vector<ScriptStatement>& block) {
    return [&]() -> absl::StatusOr<std::vector<TorchValue>> {
      Frame inner = frame;
      TorchValue ignored;
      QUENCH_ASSIGN_OR_RETURN(const Flow flow, Run(block, inner, ignored));
      if (flow == Flow::kReturn) return Unsupported("a branch that only a run decides about returns");
      std::vector<TorchValue> values;
      for (const std::string& name : names) {
        const auto found = inner.variables.find(name);
        values.push_back(found == inner.variables.end() ? TorchValue(TorchName{"uninitialized"}) : found->second);
      }
      return values;
    };
  };
  QUENCH_ASSIGN_OR_RETURN(const std::vector<TorchValue> values,
                          p_.If(NodeName(frame, "if"), condition, branch(statement.body), branch(statement.other)));
  for (size_t i = 0; i < names.size(); ++i) frame.variables[names[i]] = values[i];
  return Flow::kNext;
}

absl::Status ScriptReader::RunLoop(const ScriptStatement& statement, Frame& frame, TorchValue& result) {
  QUENCH_ASSIGN_OR_RETURN(TorchValue value, Evaluate(statement.value, frame));
  const bool counts = statement.kind == ScriptStatement::Kind::kFor;
  if (counts) {
    const auto* count = std::get_if<int64_t>(&value);
    if (count == nullptr) return RunRuntimeLoop(statement, value, TorchValue(), frame);
    if (*count > kMaxTrips)
      return absl::ResourceExhaustedError(fmt::format("a loop of {} steps, at most {} are unrolled", *count, kMaxTrips));
    for (int64_t i = 0; i < *count; ++i) {
      QUENCH_RETURN_IF_ERROR(AssignTo(statement.targets[0], i, frame));
      QUENCH_ASSIGN_OR_RETURN(const Flow flow, Run(statement.body, frame, result));
      if (flow == Flow::kReturn) return Unsupported("a loop returns");
    }
    return absl::OkStatus();
  }
  for (int64_t i = 0; i <= kMaxTrips; ++i) {
    QUENCH_ASSIGN_OR_RETURN(const TorchValue condition, prims_.ToNumber(value, RuntimeNumber::Kind::kBool));
    const auto* known = std::get_if<bool>(&condition);
    if (known == nullptr) return RunRuntimeLoop(statement, TorchValue(), condition, frame);
    if (!*known) return absl::OkStatus();
    QUENCH_ASSIGN_OR_RETURN(const Flow flow, Run(statement.body, frame, result));
    if (flow == Flow::kReturn) return Unsupported("a loop returns");
    QUENCH_ASSIGN_OR_RETURN(value, Evaluate(statement.value, frame));
  }
  return absl::ResourceExhaustedError(fmt::format("a loop takes more than {} steps", kMaxTrips));
}

absl::Status ScriptReader::RunRuntimeLoop(const ScriptStatement& statement, const TorchValue& count,
                                          const TorchValue& condition, Frame& frame) {
  std::set<std::string> assigned;
  AddTargets(statement.body, assigned);
  if (statement.kind == ScriptStatement::Kind::kFor) assigned.erase(statement.targets[0]->text);
  std::vector<std::string> names;
  std::vector<TorchValue> initial;
  for (const std::string& name : assigned) {
    const auto found = frame.variables.find(name);
    if (found == frame.variables.end()) continue;  // of one iteration
    names.push_back(name);
    initial.push_back(found->second);
  }
  const auto iteration = [&](const TorchValue& index, const std::vector<TorchValue>& carried)
      -> absl::StatusOr<std::vector<TorchValue>> {
    Frame inner = frame;
    for (size_t i = 0; i < names.size(); ++i) inner.variables[names[i]] = carried[i];
    if (!statement.targets.empty()) QUENCH_RETURN_IF_ERROR(AssignTo(statement.targets[0], index, inner));
    TorchValue ignored;
    QUENCH_ASSIGN_OR_RETURN(const Flow flow, Run(statement.body, inner, ignored));
    if (flow == Flow::kReturn) return Unsupported("a loop returns");
    std::vector<TorchValue> results = {TorchValue(true)};
    if (statement.kind == ScriptStatement::Kind::kWhile) {
      QUENCH_ASSIGN_OR_RETURN(results[0], Evaluate(statement.value, inner));
      QUENCH_ASSIGN_OR_RETURN(results[0], prims_.ToNumber(results[0], RuntimeNumber::Kind::kBool));
    }
    for (const std::string& name : names) results.push_back(inner.variables[name]);
    return results;
  };
  QUENCH_ASSIGN_OR_RETURN(const std::vector<TorchValue> values,
                          p_.Loop(NodeName(frame, "loop"), count, condition, initial, iteration));
  for (size_t i = 0; i < names.size(); ++i) frame.variables[names[i]] = values[i];
  return absl::OkStatus();
}

// ---- The model's interface ----

// Tensors and numbers are inputs; tuples of them several, `name_0`, `name_1`.
absl::StatusOr<TorchValue> ScriptReader::InputOf(const std::string& name, const ExpressionPtr& type,
                                                 std::vector<TorchInput>& inputs,
                                                 std::vector<std::pair<size_t, TorchValue>>& places) {
  const std::string kind = TypeName(type);
  TorchInput input;
  input.declared.name = name;
  const auto add = [&](TorchValue place) {
    places.emplace_back(inputs.size(), place);
    inputs.push_back(std::move(input));
    return place;
  };
  if (kind == "Tensor" || kind.empty()) {
    input.declared.type = Type::Tensor(
        options_.default_dtype == DataType::kUndefined ? DataType::kF32 : options_.default_dtype, {});
    return add(p_.NewCell(-1));
  }
  const std::pair<const char*, RuntimeNumber::Kind> numbers[] = {
      {"int", RuntimeNumber::Kind::kInt}, {"float", RuntimeNumber::Kind::kFloat}, {"bool", RuntimeNumber::Kind::kBool}};
  for (const auto& [number, which] : numbers) {
    if (kind != number) continue;
    input.declared.type = Type::Tensor(which == RuntimeNumber::Kind::kInt    ? DataType::kI64
                                       : which == RuntimeNumber::Kind::kBool ? DataType::kBool
                                                                             : DataType::kF32, {});
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
      QUENCH_ASSIGN_OR_RETURN(TorchValue item, InputOf(fmt::format("{}_{}", name, i), types[i], inputs, places));
      items.push_back(std::move(item));
    }
    return MakeList(std::move(items), true);
  }
  return Unsupported("input `{}` of forward is of the type `{}`; tensors, numbers, and tuples of these are read",
                     Printable(name), kind.empty() ? "?" : Printable(kind));
}

// Gives what stands in for an input the input itself.
static TorchValue Placed(const TorchValue& value, const std::vector<TorchInput>& inputs, size_t& next) {
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

absl::StatusOr<TorchResult> ScriptReader::Read() {
  storages_ = "constants/";
  if (archive_.Has("constants.pkl")) {
    QUENCH_ASSIGN_OR_RETURN(const auto pickle, LoadPickle("constants.pkl"));
    for (size_t i = 0; i < pickle->root().items.size(); ++i) {
      QUENCH_ASSIGN_OR_RETURN(TorchValue value, ValueOf(*pickle->root().items[i], fmt::format("CONSTANTS.c{}", i), 0));
      constants_.push_back(std::move(value));
    }
  }
  storages_ = "data/";
  QUENCH_ASSIGN_OR_RETURN(const auto pickle, LoadPickle("data.pkl"));
  QUENCH_ASSIGN_OR_RETURN(const TorchValue root, ValueOf(pickle->root(), "", 0));
  const auto* model = std::get_if<ObjectPtr>(&root);
  if (model == nullptr) return InvalidArgument("`data.pkl` holds no module");
  QUENCH_ASSIGN_OR_RETURN(const ScriptClass* made, ClassOf((*model)->type));
  if (made == nullptr) return InvalidArgument("the archive lacks the code of `{}`", Printable((*model)->type));
  const auto forward = made->methods.find("forward");
  if (forward == made->methods.end()) {
    std::string names;
    for (const auto& [name, method] : made->methods) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", name);
    return InvalidArgument("the module has no method `forward`, which is what is computed; it has {}", names.empty() ? "none" : names);
  }
  std::vector<TorchInput> inputs;
  std::vector<std::pair<size_t, TorchValue>> places;
  std::vector<TorchValue> arguments;
  StatusCollector problems;
  for (size_t i = 1; i < forward->second.parameters.size(); ++i) {
    const ScriptParameter& parameter = forward->second.parameters[i];
    const bool given = options_.shapes.contains(parameter.name);
    if (parameter.fallback != nullptr && !given) {  // as it stands in the code
      Frame empty;
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

}  // namespace

absl::StatusOr<TorchResult> ReadScript(const TorchArchive& archive, const ImportOptions& options,
                                       const std::set<std::string>& written, TorchProgram& program) {
  return ScriptReader(archive, options, written, program).Read();
}

}  // namespace quench::importer
