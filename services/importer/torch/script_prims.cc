#include "services/importer/torch/script_prims.h"

#include <algorithm>
#include <cmath>

#include "common/base/printable.h"
#include "common/base/status.h"

namespace quench::importer {
namespace {

using ListPtr = std::shared_ptr<TorchList>;
using DictPtr = std::shared_ptr<TorchDict>;
using Maybe = std::optional<TorchValue>;

constexpr size_t kMaxItems = 1'000'000;

template <typename T>
const T* As(const TorchValue& value) {
  return std::get_if<T>(&value);
}

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

std::string TextOf(const TorchValue& value) {
  if (const auto* text = As<std::string>(value)) return *text;
  if (const auto* integer = As<int64_t>(value)) return std::to_string(*integer);
  if (const auto* real = As<double>(value)) return fmt::format("{}", *real);
  if (const auto* flag = As<bool>(value)) return *flag ? "True" : "False";
  return IsNone(value) ? "None" : "?";
}

}  // namespace

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
  if (!real) return InvalidArgument("a number is wanted where there is none");
  switch (kind) {
    case RuntimeNumber::Kind::kBool:
      return TorchValue(*real != 0);
    case RuntimeNumber::Kind::kFloat:
      return TorchValue(*real);
    case RuntimeNumber::Kind::kInt:
      break;
  }
  if (const std::optional<int64_t> integer = IntOf(value)) return TorchValue(*integer);
  if (!(std::abs(*real) < 9e18)) return InvalidArgument("{} is no integer", *real);
  return TorchValue(static_cast<int64_t>(*real));
}

// Of numbers, texts and lists; not of tensors.
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
      return InvalidArgument("`{}`: {} of {} and {} is no number", name, op, *first, *second);
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

// ---- Containers ----

absl::StatusOr<TorchValue> ScriptPrims::Item(const TorchValue& container, const TorchValue& key) {
  if (const auto* dict = As<DictPtr>(container)) {
    for (const auto& [known, value] : (*dict)->items) {
      if (AreEqual(known, key)) return value;
    }
    return InvalidArgument("a dict has no `{}`", Printable(TextOf(key)));
  }
  const std::optional<int64_t> index = IntOf(key);
  if (!index) return p_.UnknownError("an index of a list");
  if (const auto* text = As<std::string>(container)) {
    const auto size = static_cast<int64_t>(text->size());
    const int64_t at = *index < 0 ? *index + size : *index;
    if (at < 0 || at >= size)
      return InvalidArgument("a text of {} bytes has no byte {}", size, *index);
    return TorchValue(text->substr(static_cast<size_t>(at), 1));
  }
  const std::vector<TorchValue>* items = nullptr;
  if (const auto* list = As<ListPtr>(container)) items = &(*list)->items;
  if (const auto* object = As<std::shared_ptr<TorchObject>>(container)) items = &(*object)->state;
  if (items == nullptr) return InvalidArgument("an index is taken of what has no elements");
  const auto size = static_cast<int64_t>(items->size());
  const int64_t at = *index < 0 ? *index + size : *index;
  if (at < 0 || at >= size)
    return InvalidArgument("a list of {} elements has no element {}", size, *index);
  return (*items)[static_cast<size_t>(at)];
}

absl::StatusOr<Maybe> ScriptPrims::OnContainer(const std::string& op, Arguments& arguments) {
  if (arguments.empty()) {
    if (op == "dict") return Maybe(std::make_shared<TorchDict>());
    return Maybe();
  }
  const auto integer = [&](size_t i, int64_t fallback) {
    return i < arguments.size() ? IntOf(arguments[i]).value_or(fallback) : fallback;
  };
  if (const auto* text = As<std::string>(arguments[0])) {
    if (op == "len") return Maybe(static_cast<int64_t>(text->size()));
    if (op == "add" && arguments.size() > 1) return Maybe(*text + TextOf(arguments[1]));
    if (op == "eq" && arguments.size() > 1) return Maybe(AreEqual(arguments[0], arguments[1]));
    if (op == "ne" && arguments.size() > 1) return Maybe(!AreEqual(arguments[0], arguments[1]));
    if (op == "format") {
      std::string result;
      size_t next = 1;
      for (size_t i = 0; i < text->size(); ++i) {
        if (text->substr(i, 2) == "{}" && next < arguments.size()) {
          result += TextOf(arguments[next++]);
          ++i;
        } else {
          result += (*text)[i];
        }
      }
      return Maybe(result);
    }
    if (op == "__getitem__" && arguments.size() > 1) return Item(arguments[0], arguments[1]);
    return Maybe();
  }
  if (const auto* dict = As<DictPtr>(arguments[0])) {
    auto& items = (*dict)->items;
    if (op == "len") return Maybe(static_cast<int64_t>(items.size()));
    if (op == "__getitem__" && arguments.size() > 1) return Item(arguments[0], arguments[1]);
    const auto found =
        arguments.size() < 2
            ? items.end()
            : std::find_if(
                  items.begin(), items.end(),
                  [&](const auto& item) { return AreEqual(item.first, arguments[1]); });
    if (op == "__contains__") return Maybe(found != items.end());
    if (op == "get")
      return found != items.end() ? Maybe(found->second)
                                  : Maybe(arguments.size() > 2 ? arguments[2] : TorchValue());
    if (op == "_set_item" && arguments.size() > 2) {
      QUENCH_RETURN_IF_ERROR(MayChange("dict"));
      if (found != items.end()) {
        found->second = arguments[2];
      } else {
        items.emplace_back(arguments[1], arguments[2]);
      }
      return Maybe(TorchValue());
    }
    std::vector<TorchValue> all;
    for (const auto& [key, value] : items) {
      if (op == "keys") all.push_back(key);
      if (op == "values") all.push_back(value);
      if (op == "items") all.push_back(MakeList({key, value}, true));
    }
    if (op == "keys" || op == "values" || op == "items") return Maybe(MakeList(std::move(all)));
    if (op == "copy") return Maybe(std::make_shared<TorchDict>(**dict));
    return Maybe();
  }
  const auto* list = As<ListPtr>(arguments[0]);
  if (list == nullptr) return Maybe();
  std::vector<TorchValue>& items = (*list)->items;
  if (items.size() > kMaxItems)
    return absl::ResourceExhaustedError("a list has more than a million elements");
  const auto* other = arguments.size() > 1 ? As<ListPtr>(arguments[1]) : nullptr;
  if (op == "len") return Maybe(static_cast<int64_t>(items.size()));
  if (op == "__getitem__" && arguments.size() > 1) return Item(arguments[0], arguments[1]);
  if (op == "list" || op == "copy") return Maybe(MakeList(items));
  if (op == "eq" && other != nullptr) return Maybe(AreEqual(arguments[0], arguments[1]));
  if (op == "ne" && other != nullptr) return Maybe(!AreEqual(arguments[0], arguments[1]));
  if (op == "add" && other != nullptr) {
    std::vector<TorchValue> both = items;
    both.insert(both.end(), (*other)->items.begin(), (*other)->items.end());
    return Maybe(MakeList(std::move(both)));
  }
  if (op == "mul" && arguments.size() > 1) {
    const int64_t times = integer(1, 0);
    if (times > 0 &&
        items.size() * static_cast<size_t>(std::min<int64_t>(times, 1 << 20)) > kMaxItems)
      return absl::ResourceExhaustedError("a list has more than a million elements");
    std::vector<TorchValue> all;
    for (int64_t i = 0; i < times; ++i) all.insert(all.end(), items.begin(), items.end());
    return Maybe(MakeList(std::move(all)));
  }
  if (op == "slice") {
    const auto size = static_cast<int64_t>(items.size());
    const auto bound = [&](size_t i, int64_t fallback) {
      if (i >= arguments.size() || IsNone(arguments[i])) return fallback;
      const int64_t at = integer(i, fallback);
      return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
    };
    const int64_t step = integer(3, 1);
    std::vector<TorchValue> part;
    for (int64_t i = bound(1, 0); i < bound(2, size) && step > 0; i += step)
      part.push_back(items[static_cast<size_t>(i)]);
    return Maybe(MakeList(std::move(part)));
  }
  if (op == "__contains__" && arguments.size() > 1)
    return Maybe(std::any_of(items.begin(), items.end(),
                             [&](const TorchValue& item) { return AreEqual(item, arguments[1]); }));
  if ((op == "any" || op == "all") && arguments.size() == 1) {
    TorchValue result = op == "all";
    for (const TorchValue& item : items) {
      QUENCH_ASSIGN_OR_RETURN(const TorchValue flag, ToNumber(item, RuntimeNumber::Kind::kBool));
      QUENCH_ASSIGN_OR_RETURN(const Maybe next,
                              Arithmetic(op == "any" ? "__or__" : "__and__", op, {result, flag}));
      if (!next) return Maybe();
      result = *next;
    }
    return Maybe(result);
  }
  if (op == "max" || op == "min" || op == "sum") {
    TorchValue best = items.empty() ? TorchValue(int64_t{0}) : items[0];
    for (size_t i = 1; i < items.size(); ++i) {
      QUENCH_ASSIGN_OR_RETURN(const Maybe next,
                              Arithmetic(op == "sum" ? "add" : op, op, {best, items[i]}));
      if (!next) return Maybe();
      best = *next;
    }
    return Maybe(best);
  }
  const bool changes = op == "append" || op == "extend" || op == "insert" || op == "pop" ||
                       op == "clear" || op == "_set_item" || op == "add_" || op == "reverse";
  if (!changes) return Maybe();
  QUENCH_RETURN_IF_ERROR(MayChange("list"));
  if (op == "append" && arguments.size() > 1) items.push_back(arguments[1]);
  if ((op == "extend" || op == "add_") && other != nullptr) {
    const std::vector<TorchValue> more = (*other)->items;
    items.insert(items.end(), more.begin(), more.end());
  }
  if (op == "clear") items.clear();
  if (op == "reverse") std::reverse(items.begin(), items.end());
  const auto size = static_cast<int64_t>(items.size());
  int64_t at = integer(1, -1);
  if (at < 0) at += size;
  if (op == "insert" && arguments.size() > 2)
    items.insert(items.begin() + std::clamp<int64_t>(at, 0, size), arguments[2]);
  if (op == "_set_item" || op == "pop") {
    if (at < 0 || at >= size)
      return InvalidArgument("a list of {} elements has no element {}", size, integer(1, -1));
    if (op == "pop") {
      TorchValue popped = items[static_cast<size_t>(at)];
      items.erase(items.begin() + at);
      return Maybe(popped);
    }
    items[static_cast<size_t>(at)] = arguments[2];
  }
  return Maybe(arguments[0]);
}

// ---- Tensors ----

absl::StatusOr<TorchValue> ScriptPrims::SizeOf(const CellPtr& cell, int64_t axis,
                                               const std::string& name) {
  QUENCH_ASSIGN_OR_RETURN(const int rank, p_.RankOf(cell));
  QUENCH_ASSIGN_OR_RETURN(const Type type, p_.TypeOf(cell));
  const int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank)
    return InvalidArgument("`{}`: a tensor of rank {} has no axis {}", name, rank, axis);
  const Dim dim = type.dims[static_cast<size_t>(at)];
  if (dim.is_static()) return TorchValue(dim.value());
  QUENCH_ASSIGN_OR_RETURN(const TorchValue size, p_.Call("aten", "size", name, {cell, at}));
  return p_.Settle({std::get<CellPtr>(size)->handle, RuntimeNumber::Kind::kInt});
}

// `torch.tensor`: numbers in nested lists.
absl::StatusOr<TorchValue> ScriptPrims::TensorOf(const TorchValue& data, const TorchValue* dtype) {
  DataType wanted = DataType::kUndefined;
  if (dtype != nullptr && IntOf(*dtype)) {
    QUENCH_ASSIGN_OR_RETURN(wanted, DataTypeOfScalarType(*IntOf(*dtype)));
  }
  const auto cast = [&](const TorchValue& value) -> absl::StatusOr<TorchValue> {
    if (wanted == DataType::kUndefined) return value;
    return p_.Call("aten", "to", "tensor", {value, ScalarTypeOf(wanted)});
  };
  if (As<CellPtr>(data) != nullptr) return cast(data);
  if (const auto* number = As<RuntimeNumber>(data)) return cast(p_.NewCell(number->handle));
  std::vector<int64_t> dims;
  std::vector<TorchValue> level = {data};
  while (!level.empty() && As<ListPtr>(level[0]) != nullptr) {
    const size_t size = (*As<ListPtr>(level[0]))->items.size();
    dims.push_back(static_cast<int64_t>(size));
    std::vector<TorchValue> next;
    for (const TorchValue& item : level) {
      const auto* list = As<ListPtr>(item);
      if (list == nullptr || (*list)->items.size() != size || next.size() > kMaxItems)
        return InvalidArgument("a tensor is made of lists of different lengths");
      next.insert(next.end(), (*list)->items.begin(), (*list)->items.end());
    }
    level = std::move(next);
  }
  bool real = false, flags = !level.empty(), known = true;
  for (const TorchValue& value : level) {
    real = real || As<double>(value) != nullptr;
    flags = flags && As<bool>(value) != nullptr;
    known = known && RealOf(value).has_value();
  }
  if (!known) {
    QUENCH_ASSIGN_OR_RETURN(const TorchValue stacked,
                            p_.Call("aten", "stack", "tensor", {MakeList(level), int64_t{0}}));
    if (dims.size() != 1)
      return Unsupported("a tensor is made of nested lists that only a run knows");
    return cast(stacked);
  }
  if (wanted == DataType::kUndefined)
    wanted = real || level.empty() ? DataType::kF32 : flags ? DataType::kBool : DataType::kI64;
  Tensor tensor;
  if (IsFloat(wanted) || real) {
    std::vector<double> values;
    for (const TorchValue& value : level) values.push_back(*RealOf(value));
    tensor = Tensor::Of(DataType::kF64, dims, values);
    if (wanted == DataType::kF32) {
      const std::vector<float> floats(values.begin(), values.end());
      return TorchValue(p_.NewCell(p_.b.AddConstant("tensor", Tensor::Of(wanted, dims, floats))));
    }
  } else {
    std::vector<int64_t> values;
    for (const TorchValue& value : level) values.push_back(*IntOf(value));
    tensor = Tensor::Of(DataType::kI64, dims, values);
  }
  const bool right = tensor.dtype() == wanted;
  const TorchValue cell = p_.NewCell(p_.b.AddConstant("tensor", std::move(tensor)));
  return right ? absl::StatusOr<TorchValue>(cell) : cast(cell);
}

absl::StatusOr<Maybe> ScriptPrims::OnTensor(const std::string& op, const std::string& name,
                                            Arguments& arguments, TorchArguments& named) {
  if ((op == "tensor" || op == "as_tensor" || op == "scalar_tensor" || op == "NumToTensor") &&
      !arguments.empty()) {
    const TorchValue* dtype = FindArgument(named, "dtype");
    if (dtype == nullptr && arguments.size() > 1) dtype = &arguments[1];
    return TensorOf(arguments[0], dtype);
  }
  const auto* cell = arguments.empty() ? nullptr : As<CellPtr>(arguments[0]);
  if (cell == nullptr) return Maybe();
  if (op == "size" && arguments.size() == 1) {
    QUENCH_ASSIGN_OR_RETURN(const int rank, p_.RankOf(*cell));
    std::vector<TorchValue> sizes;
    for (int64_t axis = 0; axis < rank; ++axis) {
      QUENCH_ASSIGN_OR_RETURN(TorchValue size, SizeOf(*cell, axis, name));
      sizes.push_back(std::move(size));
    }
    return Maybe(MakeList(std::move(sizes)));
  }
  if (op == "shape") {
    Arguments one = {arguments[0]};
    TorchArguments none;
    return OnTensor("size", name, one, none);
  }
  if ((op == "size" && arguments.size() == 2) || op == "len") {
    const std::optional<int64_t> axis = op == "len" ? 0 : IntOf(arguments[1]);
    if (!axis) return p_.UnknownError("an axis");
    QUENCH_ASSIGN_OR_RETURN(TorchValue size, SizeOf(*cell, *axis, name));
    return Maybe(std::move(size));
  }
  if (op == "dim" || op == "ndim" || op == "ndimension") {
    QUENCH_ASSIGN_OR_RETURN(const int rank, p_.RankOf(*cell));
    return Maybe(int64_t{rank});
  }
  if (op == "numel") {
    QUENCH_ASSIGN_OR_RETURN(const int rank, p_.RankOf(*cell));
    TorchValue product = int64_t{1};
    for (int64_t axis = 0; axis < rank; ++axis) {
      QUENCH_ASSIGN_OR_RETURN(const TorchValue size, SizeOf(*cell, axis, name));
      QUENCH_ASSIGN_OR_RETURN(const Maybe next, Arithmetic("mul", name, {product, size}));
      if (!next) return InvalidArgument("`{}`: a tensor has too many elements", name);
      product = *next;
    }
    return Maybe(product);
  }
  if (op == "item" || op == "Float" || op == "Int" || op == "Bool" || op == "FloatImplicit" ||
      op == "IntImplicit" || op == "ScalarImplicit") {
    QUENCH_ASSIGN_OR_RETURN(const Type type, p_.TypeOf(*cell));
    const bool real = op.starts_with("Float") || (!op.starts_with("Int") && IsFloat(type.dtype));
    const bool flag = op == "Bool" || (op == "item" && type.dtype == DataType::kBool);
    QUENCH_ASSIGN_OR_RETURN(TorchValue number,
                            p_.NumberOf(*cell, flag   ? RuntimeNumber::Kind::kBool
                                               : real ? RuntimeNumber::Kind::kFloat
                                                      : RuntimeNumber::Kind::kInt));
    return Maybe(std::move(number));
  }
  QUENCH_ASSIGN_OR_RETURN(const Type type, p_.TypeOf(*cell));
  if (op == "dtype" || op == "is_floating_point" || op == "is_complex") {
    if (!type.known()) return p_.UnknownError(fmt::format("`{}`: an element type", name));
    if (op == "is_complex") return Maybe(false);
    return op == "dtype" ? Maybe(ScalarTypeOf(type.dtype)) : Maybe(IsFloat(type.dtype));
  }
  return Maybe();
}

// ---- Quantized ----

absl::StatusOr<CellPtr> ScriptPrims::Dequantized(const std::string& name,
                                                 const TorchTensor& tensor) {
  if (tensor.scale.scale.empty()) return p_.NewCell(p_.b.AddConstant(name, tensor.tensor));
  if (options_.keep_quantized_weight) {
    std::vector<TorchValue> scales, zeros;
    for (const double scale : tensor.scale.scale) scales.emplace_back(scale);
    for (const int64_t zero : tensor.scale.zero) zeros.emplace_back(zero);
    const bool one = scales.size() == 1;
    TorchArguments arguments = {{"self", p_.NewCell(p_.b.AddConstant(name, tensor.tensor))},
                                {"scale", one ? scales[0] : MakeList(scales)},
                                {"zero_point", one ? zeros[0] : MakeList(zeros)},
                                {"axis", tensor.scale.axis}};
    QUENCH_ASSIGN_OR_RETURN(const TorchValue real,
                            p_.Call("quantized", "dequantized", name, {}, std::move(arguments)));
    return std::get<CellPtr>(real);
  }
  const std::vector<int64_t>& dims = tensor.tensor.dims();
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(tensor.scale.axis) + 1; i < dims.size(); ++i)
    inner *= dims[i];
  const auto channels = static_cast<int64_t>(tensor.scale.scale.size());
  std::vector<float> values(static_cast<size_t>(tensor.tensor.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at =
        static_cast<size_t>(channels == 1 ? 0 : static_cast<int64_t>(i) / inner % channels);
    values[i] = static_cast<float>(
        static_cast<double>(tensor.tensor.IntAt(static_cast<int64_t>(i)) - tensor.scale.zero[at]) *
        tensor.scale.scale[at]);
  }
  return p_.NewCell(p_.b.AddConstant(name, Tensor::Of(DataType::kF32, dims, values)));
}

absl::StatusOr<TorchValue> ScriptPrims::FakeQuantized(TorchValue real, const TorchValue& scale,
                                                      const TorchValue& zero, int64_t type,
                                                      const std::string& name) {
  return p_.Call(
      "quantized", "fake_quantize", name, {},
      {{"self", std::move(real)}, {"scale", scale}, {"zero_point", zero}, {"dtype", type}});
}

// Packed parameters: weight, bias, then what of the window they have.
absl::StatusOr<Maybe> ScriptPrims::Quantized(const std::string& domain, const std::string& op,
                                             const std::string& name, Arguments& arguments,
                                             TorchArguments& named) {
  constexpr int64_t kQuint8 = 13;
  const auto at = [&](size_t i, const char* key) -> TorchValue {
    if (i < arguments.size()) return arguments[i];
    const TorchValue* value = FindArgument(named, key);
    return value == nullptr ? TorchValue() : *value;
  };
  if (domain == "aten") {  // a quantized tensor is the real one that it stands for
    if (op == "quantize_per_tensor" && arguments.size() >= 3) {
      const TorchValue type = at(3, "dtype");
      QUENCH_ASSIGN_OR_RETURN(const TorchValue scale,
                              ToNumber(arguments[1], RuntimeNumber::Kind::kFloat));
      QUENCH_ASSIGN_OR_RETURN(const TorchValue zero,
                              ToNumber(arguments[2], RuntimeNumber::Kind::kInt));
      QUENCH_ASSIGN_OR_RETURN(TorchValue y, FakeQuantized(arguments[0], scale, zero,
                                                          IntOf(type).value_or(kQuint8), name));
      return Maybe(std::move(y));
    }
    if (op == "dequantize" && !arguments.empty()) return Maybe(arguments[0]);
    return Maybe();
  }
  if (domain != "quantized" && domain != "prepacked") return Maybe();
  if (op.ends_with("_prepack")) {
    auto packed = std::make_shared<TorchObject>();
    packed->type = "packed";
    packed->state = arguments;
    return Maybe(packed);
  }
  const auto* object =
      arguments.size() > 1 ? As<std::shared_ptr<TorchObject>>(arguments[1]) : nullptr;
  const bool convolves = op.starts_with("conv");
  if (object != nullptr && (convolves || op.starts_with("linear"))) {
    const Arguments& packed = (*object)->state;
    if (packed.empty()) return InvalidArgument("`{}`: packed parameters without a weight", name);
    TorchArguments all = {{"input", arguments[0]}, {"weight", packed[0]}};
    if (packed.size() > 1 && !IsNone(packed[1])) all.emplace_back("bias", packed[1]);
    if (domain == "prepacked") {
      const size_t first = convolves ? 6 : 2;
      const char* window[] = {"stride", "padding", "dilation", "groups"};
      for (size_t i = 2; i < std::min<size_t>(packed.size(), 6) && convolves; ++i)
        all.emplace_back(window[i - 2], packed[i]);
      if (packed.size() > first && !IsNone(packed[first]))
        all.emplace_back("output_min", packed[first]);
      if (packed.size() > first + 1 && !IsNone(packed[first + 1]))
        all.emplace_back("output_max", packed[first + 1]);
      QUENCH_ASSIGN_OR_RETURN(TorchValue y, p_.Call("prepacked", op, name, {}, std::move(all)));
      return Maybe(std::move(y));
    }
    if (op.starts_with("linear_dynamic") || op.starts_with("linear_relu_dynamic")) {
      if (op.ends_with("fp16")) {
        QUENCH_ASSIGN_OR_RETURN(TorchValue y, p_.Call("aten", "linear", name, {}, std::move(all)));
        return Maybe(std::move(y));
      }
      all.emplace_back("reduce_range", at(2, "reduce_range"));
      all.emplace_back("relu", op.starts_with("linear_relu"));
      if (IsNone(all[all.size() - 2].second)) all[all.size() - 2].second = false;
      QUENCH_ASSIGN_OR_RETURN(TorchValue y,
                              p_.Call("quantized", "linear_dynamic", name, {}, std::move(all)));
      return Maybe(std::move(y));
    }
    const char* window[] = {"stride", "padding", "dilation", "groups"};
    for (size_t i = 2; i < std::min<size_t>(packed.size(), 6) && convolves; ++i)
      all.emplace_back(window[i - 2], packed[i]);
    QUENCH_ASSIGN_OR_RETURN(TorchValue y, p_.Call("aten", convolves ? op.substr(0, 6) : "linear",
                                                  name, {}, std::move(all)));
    if (op.find("relu") != std::string::npos) {
      QUENCH_ASSIGN_OR_RETURN(y, p_.Call("aten", "relu", name, {y}));
    }
    QUENCH_ASSIGN_OR_RETURN(
        y, FakeQuantized(y, at(2, "output_scale"), at(3, "output_zero_point"), kQuint8, name));
    return Maybe(std::move(y));
  }
  if ((op == "add" || op == "mul" || op == "add_relu" || op == "mul_relu") &&
      arguments.size() >= 2) {
    QUENCH_ASSIGN_OR_RETURN(TorchValue y,
                            p_.Call("aten", op.substr(0, 3), name, {arguments[0], arguments[1]}));
    if (op.ends_with("relu")) {
      QUENCH_ASSIGN_OR_RETURN(y, p_.Call("aten", "relu", name, {y}));
    }
    QUENCH_ASSIGN_OR_RETURN(y,
                            FakeQuantized(y, at(2, "scale"), at(3, "zero_point"), kQuint8, name));
    return Maybe(std::move(y));
  }
  if (op == "cat" && arguments.size() >= 2) {
    QUENCH_ASSIGN_OR_RETURN(TorchValue y,
                            p_.Call("aten", "cat", name, {arguments[0], arguments[1]}));
    if (IsNone(at(2, "scale"))) return Maybe(std::move(y));
    QUENCH_ASSIGN_OR_RETURN(y,
                            FakeQuantized(y, at(2, "scale"), at(3, "zero_point"), kQuint8, name));
    return Maybe(std::move(y));
  }
  return Maybe();
}

// ---- All ----

absl::StatusOr<Maybe> ScriptPrims::Known(const std::string& domain, const std::string& op,
                                         const std::string& name, Arguments& arguments,
                                         TorchArguments& named) {
  if (domain == "prim" || domain == "aten") {
    if (op == "RaiseException")
      return absl::AbortedError(fmt::format(
          "the model raises `{}`", arguments.empty() ? "" : Printable(TextOf(arguments[0]))));
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
    if (op == "str" && arguments.size() == 1) return Maybe(TextOf(arguments[0]));
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
