// The statements and expressions of TorchScript's code.
#include "services/importer/torch/script_reader.h"

#include <algorithm>
#include <cmath>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/torch/script_values.h"

namespace quench::importer {
namespace {

using Kind = ScriptExpression::Kind;
using ObjectPtr = std::shared_ptr<TorchObject>;

constexpr int kMaxCalls = 100;             // within one another
constexpr int64_t kMaxSteps = 20'000'000;  // statements, those of loops each time
constexpr int64_t kMaxTrips = 100'000;     // of a loop that is known

void AddTargets(const std::vector<ScriptStatement>& block, std::set<std::string>& names) {
  for (const ScriptStatement& statement : block) {
    for (const ExpressionPtr& target : statement.targets) {
      if (target->kind == Kind::kName) names.insert(target->text);
    }
    AddTargets(statement.body, names);
    AddTargets(statement.other, names);
  }
}

}  // namespace

std::string ScriptTypeName(const ExpressionPtr& type) {
  if (type == nullptr) return "";
  if (type->kind == Kind::kName) return type->text;
  if (type->kind == Kind::kItem) return ScriptTypeName(type->items[0]);
  return "";
}

absl::Status ScriptReader::Where(const absl::Status& status, const ScriptFrame& frame,
                                 int line) const {
  if (status.ok() || absl::IsCancelled(status) ||
      status.message().find(" line ") != std::string_view::npos)
    return status;
  return Annotate(status, fmt::format("`{}` line {}", frame.file, line));
}

std::string ScriptReader::DottedName(const ScriptExpression& expression, const ScriptFrame& frame) {
  if (expression.kind == Kind::kName) {
    const std::string& name = expression.text;
    const bool reserved =
        name == "torch" || name == "ops" || name == "__torch__" || name == "CONSTANTS";
    return reserved && !frame.variables.contains(name) ? name : "";
  }
  if (expression.kind != Kind::kAttribute) return "";
  const std::string base = DottedName(*expression.items[0], frame);
  return base.empty() ? "" : base + "." + expression.text;
}

absl::StatusOr<TorchValue> ScriptReader::AttributeOf(const TorchValue& value,
                                                     const std::string& name) {
  const auto* object = std::get_if<ObjectPtr>(&value);
  if (object == nullptr)
    return InvalidArgument("`.{}` is asked of what is not an object", Printable(name));
  const auto found = (*object)->attributes.find(name);
  if (found != (*object)->attributes.end()) return found->second;
  QUENCH_ASSIGN_OR_RETURN(const ScriptClass* made, ClassOf((*object)->type));
  if (made != nullptr) {
    if (const auto constant = made->constants.find(name); constant != made->constants.end()) {
      ScriptFrame empty;
      return Evaluate(constant->second, empty);
    }
  }
  return InvalidArgument("`{}` has no attribute `{}`", Printable((*object)->type), Printable(name));
}

absl::StatusOr<TorchValue> ScriptReader::Evaluate(const ExpressionPtr& expression,
                                                  ScriptFrame& frame) {
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
        if (index >= constants_.size())
          return InvalidArgument("there is no constant `{}`", Printable(dotted));
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

absl::StatusOr<TorchValue> ScriptReader::EvaluateCall(const ScriptExpression& call,
                                                      ScriptFrame& frame) {
  const ScriptExpression& callee = *call.items[0];
  // The first argument of these is a type.
  const bool typed =
      callee.kind == Kind::kName && (callee.text == "annotate" || callee.text == "unchecked_cast" ||
                                     callee.text == "uninitialized");
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
  if (callee.kind != Kind::kAttribute) return InvalidArgument("a call of what is not a function");
  QUENCH_ASSIGN_OR_RETURN(const TorchValue self, Evaluate(callee.items[0], frame));
  const auto* object = std::get_if<ObjectPtr>(&self);
  if (object == nullptr)
    return InvalidArgument("`.{}` is called on what is not an object", Printable(callee.text));
  return CallMethod(*object, callee.text, std::move(positional), std::move(named));
}

absl::StatusOr<TorchValue> ScriptReader::CallNamed(const std::string& name,
                                                   const ScriptExpression& call,
                                                   std::vector<TorchValue> arguments,
                                                   TorchArguments named, ScriptFrame& frame) {
  if (name == "uninitialized") return TorchValue(TorchName{"uninitialized"});
  if (const auto found = frame.variables.find(name); found != frame.variables.end()) {
    const auto* function = std::get_if<TorchName>(&found->second);
    if (function == nullptr)
      return InvalidArgument("`{}` is called and is not a function", Printable(name));
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
    const std::string type = ScriptTypeName(call.items[2]);
    const TorchValue& value = arguments[0];
    const bool is = type == "Tensor"                    ? std::holds_alternative<CellPtr>(value)
                    : type == "int"                     ? std::holds_alternative<int64_t>(value)
                    : type == "float"                   ? std::holds_alternative<double>(value)
                    : type == "bool"                    ? std::holds_alternative<bool>(value)
                    : type == "str"                     ? std::holds_alternative<std::string>(value)
                    : type == "NoneType"                ? IsNone(value)
                    : type == "List" || type == "Tuple" ? std::holds_alternative<ListPtr>(value)
                                                        : false;
    return TorchValue(is);
  }
  return Unsupported("a call of `{}`", Printable(name));
}

absl::StatusOr<TorchValue> ScriptReader::CallQualified(const std::string& name,
                                                       std::vector<TorchValue> arguments,
                                                       TorchArguments named, ScriptFrame& frame) {
  if (name.starts_with("torch.")) {
    const std::string op = name.substr(6);
    return prims_.Call("aten", op, NodeName(frame, op), std::move(arguments), std::move(named));
  }
  if (name.starts_with("ops.")) {
    const size_t dot = name.find('.', 4);
    if (dot == std::string::npos)
      return InvalidArgument("`{}` is not an operator", Printable(name));
    const std::string op = name.substr(dot + 1);
    return prims_.Call(name.substr(4, dot - 4), op, NodeName(frame, op), std::move(arguments),
                       std::move(named));
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
  if (made != nullptr && made->is_named_tuple && named.empty() &&
      arguments.size() == made->fields.size()) {
    auto tuple = std::make_shared<TorchObject>();
    tuple->type = name;
    for (size_t i = 0; i < arguments.size(); ++i) tuple->attributes[made->fields[i]] = arguments[i];
    tuple->state = std::move(arguments);
    tuple->fields = made->fields;
    return TorchValue(tuple);
  }
  return Unsupported("a call of `{}`, whose code the archive lacks", Printable(name));
}

absl::StatusOr<TorchValue> ScriptReader::CallMethod(const ObjectPtr& object,
                                                    const std::string& method,
                                                    std::vector<TorchValue> arguments,
                                                    TorchArguments named) {
  QUENCH_ASSIGN_OR_RETURN(const ScriptClass* made, ClassOf(object->type));
  if (made == nullptr || !made->methods.contains(method))
    return InvalidArgument("`{}` has no method `{}`", Printable(object->type), Printable(method));
  arguments.insert(arguments.begin(), object);
  return CallFunction(made->methods.at(method), std::move(arguments), std::move(named),
                      object->path);
}

absl::StatusOr<TorchValue> ScriptReader::CallFunction(const ScriptFunction& function,
                                                      std::vector<TorchValue> positional,
                                                      TorchArguments named,
                                                      const std::string& path) {
  if (calls_ >= kMaxCalls) return InvalidArgument("calls nest more than {} deep", kMaxCalls);
  if (positional.size() > function.parameters.size())
    return InvalidArgument("`{}` takes {} arguments, {} are given", function.name,
                           function.parameters.size(), positional.size());
  ScriptFrame frame;
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
  const absl::StatusOr<ScriptFlow> flow = Run(function.body, frame, result);
  --calls_;
  QUENCH_RETURN_IF_ERROR(flow.status());
  return result;
}

absl::StatusOr<ScriptFlow> ScriptReader::Run(const std::vector<ScriptStatement>& block,
                                             ScriptFrame& frame, TorchValue& result) {
  for (const ScriptStatement& statement : block) {
    QUENCH_RETURN_IF_ERROR(p_.context().Check());
    if (++steps_ > kMaxSteps)
      return absl::ResourceExhaustedError(
          fmt::format("the model's code takes more than {} steps", kMaxSteps));
    absl::StatusOr<ScriptFlow> flow = RunStatement(statement, frame, result);
    if (!flow.ok()) return Where(flow.status(), frame, statement.line);
    if (*flow == ScriptFlow::kReturn) return ScriptFlow::kReturn;
  }
  return ScriptFlow::kNext;
}

absl::StatusOr<ScriptFlow> ScriptReader::RunStatement(const ScriptStatement& statement,
                                                      ScriptFrame& frame, TorchValue& result) {
  switch (statement.kind) {
    case ScriptStatement::Kind::kPass:
      return ScriptFlow::kNext;
    case ScriptStatement::Kind::kCall:
      QUENCH_RETURN_IF_ERROR(Evaluate(statement.value, frame).status());
      return ScriptFlow::kNext;
    case ScriptStatement::Kind::kAssign:
      QUENCH_RETURN_IF_ERROR(Assign(statement, frame));
      return ScriptFlow::kNext;
    case ScriptStatement::Kind::kReturn:
      if (statement.value != nullptr) {
        QUENCH_ASSIGN_OR_RETURN(result, Evaluate(statement.value, frame));
      }
      return ScriptFlow::kReturn;
    case ScriptStatement::Kind::kIf:
      return RunIf(statement, frame, result);
    case ScriptStatement::Kind::kFor:
    case ScriptStatement::Kind::kWhile:
      QUENCH_RETURN_IF_ERROR(RunLoop(statement, frame, result));
      return ScriptFlow::kNext;
  }
  return Internal("a statement of no kind");
}

absl::Status ScriptReader::AssignTo(const ExpressionPtr& target, const TorchValue& value,
                                    ScriptFrame& frame) {
  if (target->kind == Kind::kName) {
    frame.variables[target->text] = value;
    return absl::OkStatus();
  }
  if (target->kind != Kind::kAttribute)
    return Unsupported("an assignment to what is not a variable");
  QUENCH_ASSIGN_OR_RETURN(const TorchValue owner, Evaluate(target->items[0], frame));
  const auto* object = std::get_if<ObjectPtr>(&owner);
  if (object == nullptr)
    return InvalidArgument("`.{}` is set of what is not an object", Printable(target->text));
  TorchValue& attribute = (*object)->attributes[target->text];
  const auto* old = std::get_if<CellPtr>(&attribute);
  const auto* cell = std::get_if<CellPtr>(&value);
  // A tensor of a module that changes is a state of the model.
  if (old != nullptr && cell != nullptr && !(*old)->name.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const Handle handle, p_.Read(*cell));
    return p_.Assign(*old, handle, (*old)->name);
  }
  if (p_.in_body())
    return Unsupported("an attribute changes in a branch or loop that only a run decides about");
  QUENCH_RETURN_IF_ERROR(CheckNesting(owner, value));
  attribute = value;
  return absl::OkStatus();
}

absl::Status ScriptReader::Assign(const ScriptStatement& statement, ScriptFrame& frame) {
  QUENCH_ASSIGN_OR_RETURN(const TorchValue value, Evaluate(statement.value, frame));
  if (!statement.unpacks) return AssignTo(statement.targets[0], value, frame);
  std::vector<TorchValue> items;
  if (const auto* list = std::get_if<ListPtr>(&value)) items = (*list)->items;
  if (const auto* object = std::get_if<ObjectPtr>(&value)) items = (*object)->state;
  if (items.size() != statement.targets.size())
    return InvalidArgument("{} values are unpacked into {} names", items.size(),
                           statement.targets.size());
  for (size_t i = 0; i < items.size(); ++i)
    QUENCH_RETURN_IF_ERROR(AssignTo(statement.targets[i], items[i], frame));
  return absl::OkStatus();
}

absl::StatusOr<ScriptFlow> ScriptReader::RunIf(const ScriptStatement& statement, ScriptFrame& frame,
                                               TorchValue& result) {
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
      ScriptFrame inner = frame;
      TorchValue ignored;
      QUENCH_ASSIGN_OR_RETURN(const ScriptFlow flow, Run(block, inner, ignored));
      if (flow == ScriptFlow::kReturn)
        return Unsupported("a branch that only a run decides about returns");
      std::vector<TorchValue> values;
      for (const std::string& name : names) {
        const auto found = inner.variables.find(name);
        values.push_back(found == inner.variables.end() ? TorchValue(TorchName{"uninitialized"})
                                                        : found->second);
      }
      return values;
    };
  };
  QUENCH_ASSIGN_OR_RETURN(
      const std::vector<TorchValue> values,
      p_.If(NodeName(frame, "if"), condition, branch(statement.body), branch(statement.other)));
  for (size_t i = 0; i < names.size(); ++i) frame.variables[names[i]] = values[i];
  return ScriptFlow::kNext;
}

absl::Status ScriptReader::RunLoop(const ScriptStatement& statement, ScriptFrame& frame,
                                   TorchValue& result) {
  QUENCH_ASSIGN_OR_RETURN(TorchValue value, Evaluate(statement.value, frame));
  const bool counts = statement.kind == ScriptStatement::Kind::kFor;
  if (counts) {
    const auto* count = std::get_if<int64_t>(&value);
    if (count == nullptr) return RunRuntimeLoop(statement, value, TorchValue(), frame);
    if (*count > kMaxTrips)
      return absl::ResourceExhaustedError(
          fmt::format("a loop of {} steps, at most {} are unrolled", *count, kMaxTrips));
    for (int64_t i = 0; i < *count; ++i) {
      QUENCH_RETURN_IF_ERROR(AssignTo(statement.targets[0], i, frame));
      QUENCH_ASSIGN_OR_RETURN(const ScriptFlow flow, Run(statement.body, frame, result));
      if (flow == ScriptFlow::kReturn) return Unsupported("a loop returns");
    }
    return absl::OkStatus();
  }
  for (int64_t i = 0; i <= kMaxTrips; ++i) {
    QUENCH_ASSIGN_OR_RETURN(const TorchValue condition,
                            prims_.ToNumber(value, RuntimeNumber::Kind::kBool));
    const auto* known = std::get_if<bool>(&condition);
    if (known == nullptr) return RunRuntimeLoop(statement, TorchValue(), condition, frame);
    if (!*known) return absl::OkStatus();
    QUENCH_ASSIGN_OR_RETURN(const ScriptFlow flow, Run(statement.body, frame, result));
    if (flow == ScriptFlow::kReturn) return Unsupported("a loop returns");
    QUENCH_ASSIGN_OR_RETURN(value, Evaluate(statement.value, frame));
  }
  return absl::ResourceExhaustedError(fmt::format("a loop takes more than {} steps", kMaxTrips));
}

absl::Status ScriptReader::RunRuntimeLoop(const ScriptStatement& statement, const TorchValue& count,
                                          const TorchValue& condition, ScriptFrame& frame) {
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
  const auto iteration =
      [&](const TorchValue& index,
          const std::vector<TorchValue>& carried) -> absl::StatusOr<std::vector<TorchValue>> {
    ScriptFrame inner = frame;
    for (size_t i = 0; i < names.size(); ++i) inner.variables[names[i]] = carried[i];
    if (!statement.targets.empty())
      QUENCH_RETURN_IF_ERROR(AssignTo(statement.targets[0], index, inner));
    TorchValue ignored;
    QUENCH_ASSIGN_OR_RETURN(const ScriptFlow flow, Run(statement.body, inner, ignored));
    if (flow == ScriptFlow::kReturn) return Unsupported("a loop returns");
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

}  // namespace quench::importer
