// Plans of kernels as values: their text, which parses, and the dims in them. A plan is a struct with
// QUENCH_FIELDS of numbers, enums, dims, forms, and optionals, vectors and structs of these.
//
// The text is a JSON object of the fields that differ from a default-constructed plan's; a dim is a number
// or an expression over the names of the symbol table; a form is an object of one member, its name. Floats that JSON cannot write are "inf", "-inf", "nan".
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/fields.h"
#include "common/base/status.h"
#include "common/ir/symbols.h"
#include "services/codegen/forms/any_form.h"
#include "services/codegen/forms/gpu_builder.h"

namespace quench::codegen {

using PlanJson = nlohmann::ordered_json;

// The names of an enum's values, in order.
template <typename Enum>
struct EnumNames;
template <>
struct EnumNames<BytesForm> {
  static constexpr const char* kNames[] = {"unsigned", "signed",     "pairs",
                                           "picked",   "magnitudes", "words"};
  static_assert(std::size(kNames) == static_cast<size_t>(BytesForm::kWords) + 1);
};

template <>
struct EnumNames<MatrixProducts> {
  static constexpr const char* kNames[] = {"bf16", "f16", "u8", "i8"};
  static_assert(std::size(kNames) == static_cast<size_t>(MatrixProducts::kSigned) + 1);
};

template <>
struct EnumNames<WarpProducts> {
  static constexpr const char* kNames[] = {"f16", "bf16", "tf32", "i8", "u8"};
  static_assert(std::size(kNames) == static_cast<size_t>(WarpProducts::kU8) + 1);
};

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

class PlanWriter {
 public:
  explicit PlanWriter(const SymbolTable& symbols) : symbols_(symbols) {}

  template <typename T>
  PlanJson Json(const T& value) const {
    if constexpr (HasFields<T>) {
      return Object(value);
    } else if constexpr (std::is_same_v<T, AnyForm>) {
      return std::visit(
          [&]<typename Form>(const Form& form) { return PlanJson{{Form::kName, Json(form)}}; },
          value.listed());
    } else if constexpr (std::is_same_v<T, Dim>) {
      return value.is_static() ? PlanJson(value.value()) : PlanJson(symbols_.ToString(value));
    } else if constexpr (std::is_same_v<T, DataType>) {
      return DataTypeName(value);
    } else if constexpr (std::is_enum_v<T>) {
      return EnumNames<T>::kNames[static_cast<size_t>(value)];
    } else if constexpr (IsOptional<T>::value) {
      return value ? Json(*value) : PlanJson(nullptr);
    } else if constexpr (IsVector<T>::value || std::is_array_v<T>) {
      PlanJson all = PlanJson::array();
      for (const auto& each : value) all.push_back(Json(each));
      return all;
    } else if constexpr (std::is_floating_point_v<T>) {
      return std::isfinite(value) ? PlanJson(value) : PlanJson(fmt::format("{}", value));
    } else {
      static_assert(std::is_arithmetic_v<T>);
      return value;
    }
  }

 private:
  template <typename T>
  PlanJson Object(const T& value) const {
    const T usual{};
    PlanJson object = PlanJson::object();
    std::vector<PlanJson> defaults;
    ForEachField(usual,
                 [&](std::string_view, const auto& field) { defaults.push_back(Json(field)); });
    size_t i = 0;
    ForEachField(value, [&](std::string_view name, const auto& field) {
      PlanJson json = Json(field);
      if (json != defaults[i++]) object[std::string(name)] = std::move(json);
    });
    return object;
  }

  const SymbolTable& symbols_;
};

// Fills plans from their text. INVALID_ARGUMENT lists every field that is unknown or of another type.
class PlanReader {
 public:
  explicit PlanReader(SymbolTable& symbols) : symbols_(symbols) {}

  template <typename T>
  void Read(const PlanJson& json, const std::string& where, T& value) {
    if constexpr (HasFields<T>) {
      ReadObject(json, where, value);
    } else if constexpr (std::is_same_v<T, AnyForm>) {
      ReadForm(json, where, value);
    } else if constexpr (std::is_same_v<T, Dim>) {
      ReadDim(json, where, value);
    } else if constexpr (std::is_same_v<T, DataType>) {
      const auto type = json.is_string() ? ParseDataType(json.get<std::string>()) : std::nullopt;
      type ? void(value = *type) : Wrong(json, where, "a data type");
    } else if constexpr (std::is_enum_v<T>) {
      ReadEnum(json, where, value);
    } else if constexpr (IsOptional<T>::value) {
      json.is_null() ? value.reset() : Read(json, where, value.emplace());
    } else if constexpr (IsVector<T>::value || std::is_array_v<T>) {
      ReadList(json, where, value);
    } else if constexpr (std::is_same_v<T, bool>) {
      json.is_boolean() ? void(value = json.get<bool>()) : Wrong(json, where, "true or false");
    } else if constexpr (std::is_floating_point_v<T>) {
      ReadFloat(json, where, value);
    } else {
      ReadInteger(json, where, value);
    }
  }

  absl::Status Finish() { return problems_.Finish(); }

 private:
  template <typename T>
  void ReadObject(const PlanJson& json, const std::string& where, T& value) {
    if (!json.is_object()) return Wrong(json, where, "an object");
    std::vector<std::string_view> names;
    ForEachField(value, [&](std::string_view name, auto& field) {
      names.push_back(name);
      if (const auto found = json.find(name); found != json.end())
        Read(*found, fmt::format("{}.{}", where, name), field);
    });
    for (const auto& item : json.items()) {
      if (std::find(names.begin(), names.end(), item.key()) == names.end())
        problems_.Add(InvalidArgument("{}: there is no field `{}`", where, item.key()));
    }
  }
  void ReadForm(const PlanJson& json, const std::string& where, AnyForm& value) {
    std::vector<std::string_view> names;
    const auto read = [&]<typename Form>(Form form) {
      names.push_back(Form::kName);
      if (!json.is_object() || json.size() != 1 || !json.contains(Form::kName)) return false;
      Read(json.front(), fmt::format("{}.{}", where, Form::kName), form);
      value = std::move(form);
      return true;
    };
    const bool found = [&]<typename... Forms>(const std::variant<Forms...>&) {
      return (read(Forms()) || ...);
    }(value.listed());
    if (!found) Wrong(json, where, fmt::format("an object of one of {}", fmt::join(names, ", ")));
  }
  template <typename T>
  void ReadInteger(const PlanJson& json, const std::string& where, T& value) {
    const bool fits = json.is_number_unsigned()  ? std::in_range<T>(json.get<uint64_t>())
                      : json.is_number_integer() ? std::in_range<T>(json.get<int64_t>())
                                                 : false;
    fits ? void(value = json.get<T>())
         : Wrong(json, where, fmt::format("an integer of {} bits", 8 * sizeof(T)));
  }
  void ReadDim(const PlanJson& json, const std::string& where, Dim& dim) {
    if (json.is_number_integer()) {
      int64_t size = 0;
      ReadInteger(json, where, size);
      dim = size;
    } else if (!json.is_string()) {
      Wrong(json, where, "an integer or an expression");
    } else if (absl::StatusOr<Dim> parsed = symbols_.Parse(json.get<std::string>()); parsed.ok()) {
      dim = *parsed;
    } else {
      problems_.Add(Annotate(parsed.status(), where));
    }
  }
  template <typename T>
  void ReadFloat(const PlanJson& json, const std::string& where, T& value) {
    if (json.is_number()) {
      value = json.get<T>();
    } else if (json == "inf" || json == "-inf") {
      value = std::numeric_limits<T>::infinity() * (json == "inf" ? 1 : -1);
    } else if (json == "nan") {
      value = std::numeric_limits<T>::quiet_NaN();
    } else {
      Wrong(json, where, "a number, \"inf\", \"-inf\" or \"nan\"");
    }
  }
  template <typename Enum>
  void ReadEnum(const PlanJson& json, const std::string& where, Enum& value) {
    const auto& names = EnumNames<Enum>::kNames;
    const auto found = std::find_if(std::begin(names), std::end(names), [&](const char* name) {
      return json.is_string() && json.get<std::string>() == name;
    });
    if (found == std::end(names))
      return Wrong(json, where, fmt::format("one of {}", fmt::join(names, ", ")));
    value = static_cast<Enum>(found - std::begin(names));
  }
  template <typename T>
  void ReadList(const PlanJson& json, const std::string& where, T& value) {
    if (!json.is_array()) return Wrong(json, where, "a list");
    if constexpr (IsVector<T>::value) value.resize(json.size());
    if (json.size() != std::size(value))
      return Wrong(json, where, fmt::format("a list of {}", std::size(value)));
    for (size_t i = 0; i < json.size(); ++i)
      Read(json[i], fmt::format("{}[{}]", where, i), value[i]);
  }
  void Wrong(const PlanJson& json, const std::string& where, std::string_view right) {
    constexpr size_t kShown = 64;
    const std::string found = json.is_primitive() ? json.dump().substr(0, kShown)
                                                  : std::string("of type ") + json.type_name();
    problems_.Add(InvalidArgument("{} is {}, it must be {}", where, found, right));
  }

  SymbolTable& symbols_;
  StatusCollector problems_;
};

template <typename Plan>
std::string PlanTextOf(const Plan& plan, const SymbolTable& symbols) {
  return PlanWriter(symbols).Json(plan).dump();
}

// The inverse of PlanTextOf; expressions are interned in `symbols`.
template <typename Plan>
absl::StatusOr<Plan> ParsePlan(const std::string& text, SymbolTable& symbols) {
  const PlanJson json = PlanJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("plan `{}` is not JSON", text);
  Plan plan;
  PlanReader reader(symbols);
  reader.Read(json, "plan", plan);
  QUENCH_RETURN_IF_ERROR(reader.Finish());
  return plan;
}

// Calls visit(Dim&) for each dim of a plan.
template <typename T, typename Visit>
void ForEachDim(T& value, const Visit& visit) {
  if constexpr (HasFields<T>) {
    ForEachField(value, [&](std::string_view, auto& field) { ForEachDim(field, visit); });
  } else if constexpr (std::is_same_v<T, Dim>) {
    visit(value);
  } else if constexpr (IsOptional<T>::value) {
    if (value) ForEachDim(*value, visit);
  } else if constexpr (IsVector<T>::value || std::is_array_v<T>) {
    for (auto& each : value) ForEachDim(each, visit);
  }
}

}  // namespace quench::codegen
