#include "services/importer/keras/call.h"

#include <algorithm>

#include "common/base/status.h"
#include "services/importer/keras/model.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxListed = 1 << 20;  // elements of a constant in the arguments

// A list of lists of numbers, as a tensor; false where rows differ or something is not a number.
bool Collect(const Json& value, size_t depth, std::vector<int64_t>& dims,
             std::vector<double>& numbers) {
  if (value.is_number() || value.is_boolean()) {
    numbers.push_back(value.is_boolean() ? static_cast<double>(value.get<bool>())
                                         : value.get<double>());
    return depth == dims.size() && numbers.size() <= kMaxListed;
  }
  if (!value.is_array()) return false;
  if (dims.size() == depth && numbers.empty()) dims.push_back(static_cast<int64_t>(value.size()));
  if (depth >= dims.size() || dims[depth] != static_cast<int64_t>(value.size())) return false;
  return std::all_of(value.begin(), value.end(),
                     [&](const Json& item) { return Collect(item, depth + 1, dims, numbers); });
}

const Json& Plain(Json&& value) = delete;  // what comes back is a part of it
const Json& Plain(const Json& value) {
  if (!value.is_object() || !value.contains("class_name") || !value.contains("config"))
    return value;
  const Json& name = value["class_name"];
  const bool tensor = name == "__tensor__" || name == "__numpy__";
  return tensor && value["config"].is_object() && value["config"].contains("value")
             ? value["config"]["value"]
             : value;
}

}  // namespace

KerasArguments::KerasArguments(KerasNode& node, std::string_view parameters) : n_(node) {
  const Json call = Json::parse(node.Text(kCallAttribute), nullptr, false);
  if (!call.is_object()) return;
  const auto take = [&](const char* key) {
    if (!call.contains(key) || !call[key].is_object()) return;
    for (const auto& [name, value] : call[key].items()) named_[name] = value;
  };
  take("config");
  if (call.contains("args") && call["args"].is_array()) {
    for (const Json& argument : call["args"]) {
      const size_t end = std::min(parameters.find(' '), parameters.size());
      if (end == 0) break;
      named_[std::string(parameters.substr(0, end))] = argument;
      parameters.remove_prefix(std::min(end + 1, parameters.size()));
    }
  }
  take("kwargs");
}

const Json* KerasArguments::Find(const std::string& name) const {
  const auto found = named_.find(name);
  return found == named_.end() || found->is_null() ? nullptr : &Plain(*found);
}

bool KerasArguments::Flag(const std::string& name, bool fallback) const {
  const Json* value = Find(name);
  return value == nullptr || !value->is_boolean() ? fallback : value->get<bool>();
}

std::optional<double> KerasArguments::Number(const std::string& name) const {
  const Json* value = Find(name);
  return value == nullptr || !value->is_number() ? std::nullopt
                                                 : std::optional(value->get<double>());
}

std::optional<int64_t> KerasArguments::Int(const std::string& name) const {
  const Json* value = Find(name);
  return value == nullptr || !value->is_number_integer() ? std::nullopt
                                                         : std::optional(value->get<int64_t>());
}

std::string KerasArguments::Text(const std::string& name, const std::string& fallback) const {
  const Json* value = Find(name);
  return value == nullptr || !value->is_string() ? fallback : value->get<std::string>();
}

std::optional<std::vector<int64_t>> KerasArguments::Ints(const std::string& name) const {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer()) return std::vector<int64_t>{value->get<int64_t>()};
  std::vector<int64_t> dims;
  std::vector<double> numbers;
  if (!value->is_array() || !Collect(*value, 0, dims, numbers)) return std::nullopt;
  std::vector<int64_t> ints;
  for (const double number : numbers) {
    if (number != static_cast<double>(static_cast<int32_t>(std::clamp(number, -2e9, 2e9))))
      return std::nullopt;
    ints.push_back(static_cast<int64_t>(number));
  }
  return ints;
}

ValueId KerasArguments::TensorIn(const Json& value) const {
  if (!value.is_object() || !value.contains(kTensorKey)) return kNone;
  const Json& number = value[kTensorKey];
  return number.is_number_unsigned() && number.get<uint64_t>() < static_cast<uint64_t>(n_.count())
             ? n_.in(static_cast<int>(number.get<uint64_t>()))
             : kNone;
}

ValueId KerasArguments::Tensor(const std::string& name) const {
  const Json* value = Find(name);
  return value == nullptr ? kNone : TensorIn(*value);
}

absl::StatusOr<ValueId> KerasArguments::Operand(const std::string& name, ValueId like) const {
  const Json* value = Find(name);
  if (value == nullptr) return n_.c.Error(fmt::format("its argument `{}` is missing", name));
  absl::StatusOr<ValueId> id = OperandIn(*value, like);
  if (!id.ok())
    return n_.c.Unsupported(fmt::format("its argument `{}` is neither tensor nor number", name));
  return id;
}

absl::StatusOr<ValueId> KerasArguments::OperandIn(const Json& given, ValueId like) const {
  if (const ValueId id = TensorIn(given); id != kNone) return id;
  const Json& value = Plain(given);
  std::vector<int64_t> dims;
  std::vector<double> numbers;
  if (!Collect(value, 0, dims, numbers)) return InvalidArgument("no tensor");
  // Type as the other operand has it, or as the numbers are where there is none.
  const DataType dtype = like == kNone ? DataType::kF32 : n_.c.type(like).dtype;
  if (dims.empty()) return n_.c.Scalar(dtype, numbers[0]);
  const ValueId list = n_.c.AddConstant(quench::Tensor::Of(DataType::kF64, dims, numbers));
  return n_.Cast(list, dtype);
}

}  // namespace quench::importer
