#include "services/importer/torch/script_prims.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/torch/script_values.h"

namespace quench::importer {

// ---- Values ----

std::optional<double> RealOf(const TorchValue& value) {
  if (const auto* integer = As<int64_t>(value)) return static_cast<double>(*integer);
  if (const auto* real = As<double>(value)) return *real;
  if (const auto* flag = As<bool>(value)) return *flag ? 1 : 0;
  return std::nullopt;
}

std::optional<int64_t> IntOf(const TorchValue& value) {
  if (const auto* integer = As<int64_t>(value)) return *integer;
  if (const auto* flag = As<bool>(value)) return *flag ? 1 : 0;
  return std::nullopt;
}

bool IsNumber(const TorchValue& value) {
  return RealOf(value) || As<RuntimeNumber>(value) != nullptr;
}

std::string ScriptText(const TorchValue& value) {
  if (const auto* text = As<std::string>(value)) return *text;
  if (const auto* integer = As<int64_t>(value)) return std::to_string(*integer);
  if (const auto* real = As<double>(value)) return fmt::format("{}", *real);
  if (const auto* flag = As<bool>(value)) return *flag ? "True" : "False";
  return IsNone(value) ? "None" : "?";
}

bool AreEqual(const TorchValue& a, const TorchValue& b) {
  if (const auto x = RealOf(a), y = RealOf(b); x && y) return *x == *y;
  if (a.index() != b.index()) return false;
  if (const auto* text = As<std::string>(a)) return *text == *As<std::string>(b);
  if (const auto* list = As<ListPtr>(a)) {
    const auto &x = (*list)->items, &y = (*As<ListPtr>(b))->items;
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), AreEqual);
  }
  if (const auto* cell = As<CellPtr>(a)) return *cell == *As<CellPtr>(b);
  if (const auto* object = As<std::shared_ptr<TorchObject>>(a))
    return *object == *As<std::shared_ptr<TorchObject>>(b);
  return IsNone(a);
}

absl::Status CheckNesting(const TorchValue& container, const TorchValue& part) {
  const auto address = [](const TorchValue& value) -> const void* {
    if (const auto* list = As<ListPtr>(value)) return list->get();
    if (const auto* dict = As<DictPtr>(value)) return dict->get();
    const auto* object = As<std::shared_ptr<TorchObject>>(value);
    return object == nullptr ? nullptr : object->get();
  };
  std::set<const void*> seen;
  std::vector<const TorchValue*> pending = {&part};
  while (!pending.empty()) {
    const TorchValue& value = *pending.back();
    pending.pop_back();
    const void* here = address(value);
    if (here == nullptr || !seen.insert(here).second) continue;
    if (here == address(container))
      return InvalidArgument("a list, dict or object becomes a part of itself");
    if (const auto* list = As<ListPtr>(value)) {
      for (const TorchValue& item : (*list)->items) pending.push_back(&item);
    } else if (const auto* dict = As<DictPtr>(value)) {
      for (const auto& [key, item] : (*dict)->items) pending.push_back(&item);
    } else if (const auto* object = As<std::shared_ptr<TorchObject>>(value)) {
      for (const auto& [name, item] : (*object)->attributes) pending.push_back(&item);
      for (const TorchValue& item : (*object)->state) pending.push_back(&item);
    }
  }
  return absl::OkStatus();
}

namespace {

int64_t FloorDiv(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q * b != a && ((a < 0) != (b < 0)) ? q - 1 : q;
}

// Two integers; nullopt where the result is none that fits.
Maybe OnIntegers(const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "add") return __builtin_add_overflow(a, b, &result) ? Maybe() : Maybe(result);
  if (op == "sub") return __builtin_sub_overflow(a, b, &result) ? Maybe() : Maybe(result);
  if (op == "mul") return __builtin_mul_overflow(a, b, &result) ? Maybe() : Maybe(result);
  const bool divides = b != 0 && !(a == INT64_MIN && b == -1);
  if (op == "floordiv" || op == "floor_divide") return divides ? Maybe(FloorDiv(a, b)) : Maybe();
  if (op == "remainder") return divides ? Maybe(a - FloorDiv(a, b) * b) : Maybe();
  if (op == "div") return b == 0 ? Maybe() : Maybe(static_cast<double>(a) / static_cast<double>(b));
  if (op == "__and__") return Maybe(a & b);
  if (op == "__or__") return Maybe(a | b);
  if (op == "__xor__") return Maybe(a ^ b);
  if (op == "max") return Maybe(std::max(a, b));
  if (op == "min") return Maybe(std::min(a, b));
  return std::nullopt;
}

Maybe OnReals(const std::string& op, double a, double b) {
  if (op == "add") return Maybe(a + b);
  if (op == "sub") return Maybe(a - b);
  if (op == "mul") return Maybe(a * b);
  if (op == "div") return b == 0 ? Maybe() : Maybe(a / b);
  if (op == "floordiv" || op == "floor_divide") return b == 0 ? Maybe() : Maybe(std::floor(a / b));
  if (op == "remainder") return b == 0 ? Maybe() : Maybe(a - std::floor(a / b) * b);
  if (op == "pow") return Maybe(std::pow(a, b));
  if (op == "max") return Maybe(std::max(a, b));
  if (op == "min") return Maybe(std::min(a, b));
  return std::nullopt;
}

Maybe Compared(const std::string& op, double a, double b) {
  if (op == "eq") return Maybe(a == b);
  if (op == "ne") return Maybe(a != b);
  if (op == "lt") return Maybe(a < b);
  if (op == "le") return Maybe(a <= b);
  if (op == "gt") return Maybe(a > b);
  if (op == "ge") return Maybe(a >= b);
  return std::nullopt;
}

bool IsComparison(const std::string& op) {
  return op == "eq" || op == "ne" || op == "lt" || op == "le" || op == "gt" || op == "ge";
}

}  // namespace

absl::Status ScriptPrims::MayChange(const std::string& what) const {
  if (!p_.in_body()) return absl::OkStatus();
  return Unsupported("a {} changes in a branch or loop that only a run decides about", what);
}

// ---- Numbers ----

absl::StatusOr<TorchValue> ScriptPrims::ToNumber(const TorchValue& value,
                                                 RuntimeNumber::Kind kind) {
  if (const auto* cell = As<CellPtr>(value)) return p_.NumberOf(*cell, kind);
  if (const auto* number = As<RuntimeNumber>(value)) {
    if (number->kind == kind) return value;
    return p_.NumberOf(p_.NewCell(number->handle), kind);
  }
  if (const auto* text = As<std::string>(value)) {
    if (*text == "inf" || *text == "-inf") return TorchValue(*text == "inf" ? INFINITY : -INFINITY);
    if (*text == "nan") return TorchValue(static_cast<double>(NAN));
    return Unsupported("the number in the text `{}`", Printable(*text));
  }
  const std::optional<double> real = RealOf(value);
  if (!real) return InvalidArgument("expected a number where there is none");
  switch (kind) {
    case RuntimeNumber::Kind::kBool:
      return TorchValue(*real != 0);
    case RuntimeNumber::Kind::kFloat:
      return TorchValue(*real);
    case RuntimeNumber::Kind::kInt:
      break;
  }
  if (const std::optional<int64_t> integer = IntOf(value)) return TorchValue(*integer);
  if (!(std::abs(*real) < 9e18)) return InvalidArgument("{} is not an integer", *real);
  return TorchValue(static_cast<int64_t>(*real));
}

// Arithmetic on numbers, texts and lists; not on tensors.
absl::StatusOr<Maybe> ScriptPrims::Arithmetic(const std::string& op, const std::string& name,
                                              const Arguments& arguments) {
  if (arguments.size() == 1 && IsNumber(arguments[0])) {
    const std::optional<double> real = RealOf(arguments[0]);
    const std::optional<int64_t> integer = IntOf(arguments[0]);
    if (op == "__not__" && real) return Maybe(*real == 0);
    if (op == "neg" && integer && *integer != INT64_MIN) return Maybe(-*integer);
    if (op == "neg" && real) return Maybe(-*real);
    if (op == "abs" && integer && *integer != INT64_MIN) return Maybe(std::abs(*integer));
    if (op == "sqrt" && real) return Maybe(std::sqrt(*real));
    if (op == "log" && real) return Maybe(std::log(*real));
    if (op == "exp" && real) return Maybe(std::exp(*real));
    if ((op == "ceil" || op == "floor" || op == "round") && real && std::abs(*real) < 9e18)
      return Maybe(static_cast<int64_t>(op == "ceil"    ? std::ceil(*real)
                                        : op == "floor" ? std::floor(*real)
                                                        : std::nearbyint(*real)));
    if (real) return Maybe();
    const RuntimeNumber number = std::get<RuntimeNumber>(arguments[0]);
    const std::string called = op == "__not__" ? "logical_not" : op;
    if (!p_.Knows("aten", called)) return Maybe();
    QUENCH_ASSIGN_OR_RETURN(const TorchValue result,
                            p_.Call("aten", called, name, {p_.NewCell(number.handle)}));
    return Maybe(
        TorchValue(p_.Settle({std::get<CellPtr>(result)->handle,
                              op == "__not__" ? RuntimeNumber::Kind::kBool : number.kind})));
  }
  if (arguments.size() < 2 || !IsNumber(arguments[0]) || !IsNumber(arguments[1])) return Maybe();
  const TorchValue &a = arguments[0], &b = arguments[1];
  const auto first = RealOf(a), second = RealOf(b);
  if (first && second) {
    if (IsComparison(op)) return Compared(op, *first, *second);
    const auto x = IntOf(a), y = IntOf(b);
    const bool flags = As<bool>(a) != nullptr && As<bool>(b) != nullptr;
    if (flags && (op == "__and__" || op == "__or__" || op == "__xor__"))
      return Maybe(op == "__and__" ? *x && *y : op == "__or__" ? *x || *y : *x != *y);
    if (x && y && op == "pow" && *y >= 0) {
      int64_t power = 1;
      for (int64_t i = 0; i < std::min<int64_t>(*y, 64); ++i) {
        if (__builtin_mul_overflow(power, *x, &power)) return Maybe();
      }
      return Maybe(power);
    }
    Maybe result = x && y ? OnIntegers(op, *x, *y) : OnReals(op, *first, *second);
    if (!result && (op == "div" || op == "floordiv" || op == "remainder"))
      return InvalidArgument("`{}`: {} of {} and {} is not a number", name, op, *first, *second);
    return result;
  }
  std::string called = op == "max" ? "maximum" : op == "min" ? "minimum" : op;
  if (!p_.Knows("aten", called)) return Maybe();
  const auto kind_of = [](const TorchValue& value) {
    if (const auto* number = As<RuntimeNumber>(value)) return number->kind;
    return As<double>(value) != nullptr ? RuntimeNumber::Kind::kFloat
           : As<bool>(value) != nullptr ? RuntimeNumber::Kind::kBool
                                        : RuntimeNumber::Kind::kInt;
  };
  auto kind = RuntimeNumber::Kind::kInt;
  if (kind_of(a) == RuntimeNumber::Kind::kFloat || kind_of(b) == RuntimeNumber::Kind::kFloat ||
      op == "div")
    kind = RuntimeNumber::Kind::kFloat;
  if (IsComparison(op) ||
      (kind_of(a) == RuntimeNumber::Kind::kBool && kind_of(b) == RuntimeNumber::Kind::kBool))
    kind = RuntimeNumber::Kind::kBool;
  QUENCH_ASSIGN_OR_RETURN(const TorchValue result, p_.Call("aten", called, name, {a, b}));
  return Maybe(p_.Settle({std::get<CellPtr>(result)->handle, kind}));
}

// ---- All ----

absl::StatusOr<Maybe> ScriptPrims::Known(const std::string& domain, const std::string& op,
                                         const std::string& name, Arguments& arguments,
                                         TorchArguments& named) {
  if (domain == "prim" || domain == "aten") {
    if (op == "RaiseException")
      return absl::AbortedError(fmt::format(
          "the model raises `{}`", arguments.empty() ? "" : Printable(ScriptText(arguments[0]))));
    if (op == "warn" || op == "print" || op == "Print") return Maybe(TorchValue());
    if (op == "__is__" && arguments.size() == 2)
      return Maybe(IsNone(arguments[0]) == IsNone(arguments[1]) &&
                   (IsNone(arguments[0]) || AreEqual(arguments[0], arguments[1])));
    if (op == "__isnot__" && arguments.size() == 2)
      return Maybe(IsNone(arguments[0]) != IsNone(arguments[1]));
    if (op == "is_autocast_enabled" || op == "is_nested" || op == "is_cuda" ||
        op == "is_quantized" || op == "is_tracing" || op == "is_mkldnn" || op == "is_sparse" ||
        op == "has_torch_function")
      return Maybe(false);
    // Kernels that PyTorch keeps for inference stand for what the code says without them.
    if (op == "is_grad_enabled" || op == "requires_grad") return Maybe(true);
    if (op == "is_scripting" || op == "is_leaf") return Maybe(true);
    if (op == "device") return Maybe(std::string("cpu"));
    if (op == "layout") return Maybe(int64_t{0});
    if (op == "type" || op == "index") {
      if (domain == "prim")
        return Maybe(op == "type" ? TorchValue(std::string("cpu")) : TorchValue());
    }
    if ((op == "unchecked_unwrap_optional" || op == "_unwrap_optional") && arguments.size() == 1) {
      if (IsNone(arguments[0]))
        return absl::AbortedError("the model takes the value of what is None");
      return Maybe(arguments[0]);
    }
    if (op == "str" && arguments.size() == 1) return Maybe(ScriptText(arguments[0]));
    if (op == "rand" || op == "randn" || op == "rand_like" || op == "randn_like" ||
        op == "bernoulli" || op == "bernoulli_" || op == "randint" || op == "multinomial")
      return Maybe(TorchName{"torch." + op + ", which is random"});
    if (op == "dropout_" || op == "feature_dropout_")
      return Maybe(arguments.empty() ? TorchValue() : arguments[0]);
    if ((op == "dropout" || op == "alias") && !arguments.empty())
      return Maybe(arguments[0]);  // the same tensor
  }
  QUENCH_ASSIGN_OR_RETURN(Maybe result, Quantized(domain, op, name, arguments, named));
  if (result || (domain != "prim" && domain != "aten")) return result;
  QUENCH_ASSIGN_OR_RETURN(result, OnContainer(op, arguments));
  if (result) return result;
  QUENCH_ASSIGN_OR_RETURN(result, Arithmetic(op, name, arguments));
  if (result) return result;
  return OnTensor(op, name, arguments, named);
}

absl::StatusOr<TorchValue> ScriptPrims::Call(const std::string& domain, const std::string& op,
                                             const std::string& name,
                                             std::vector<TorchValue> arguments,
                                             TorchArguments named) {
  QUENCH_ASSIGN_OR_RETURN(const Maybe known, Known(domain, op, name, arguments, named));
  if (known) return *known;
  // Keywords that say None say nothing.
  std::erase_if(named, [](const auto& argument) { return IsNone(argument.second); });
  return p_.Call(domain, op, name, std::move(arguments), std::move(named));
}

}  // namespace quench::importer
