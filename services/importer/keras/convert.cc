#include "services/importer/keras/convert.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "common/base/status.h"
#include "services/importer/keras/converters.h"

namespace quench::importer {
namespace {

constexpr KerasRow kKerasRows[] = {
#define QUENCH_KERAS_LAYER(name, canonical, converter, weights) \
  {"keras", #name, canonical, &keras_layers::converter, weights},
#define QUENCH_KERAS_FUNCTION(domain, name, canonical, converter, arguments) \
  {domain, name, canonical, &keras_layers::converter, arguments},
#include "services/importer/keras/keras_layers.def"
#undef QUENCH_KERAS_FUNCTION
#undef QUENCH_KERAS_LAYER
};

// Nodes that the reader makes are canonical already.
absl::Status ConvertCanonical(Converter& c) {
  return c.Final(c.node().op, c.inputs(), c.node().attributes);
}

// Activations that are an operator without more to say.
const std::map<std::string_view, const char*>& PlainActivations() {
  static const std::map<std::string_view, const char*> kNames = {{"celu", "Celu"},
                                                                 {"elu", "Elu"},
                                                                 {"exponential", "Exp"},
                                                                 {"gelu", "Gelu"},
                                                                 {"hard_silu", "HardSwish"},
                                                                 {"hard_swish", "HardSwish"},
                                                                 {"leaky_relu", "LeakyRelu"},
                                                                 {"log_softmax", "LogSoftmax"},
                                                                 {"mish", "Mish"},
                                                                 {"relu", "Relu"},
                                                                 {"selu", "Selu"},
                                                                 {"sigmoid", "Sigmoid"},
                                                                 {"silu", "Swish"},
                                                                 {"softmax", "Softmax"},
                                                                 {"softplus", "Softplus"},
                                                                 {"softsign", "Softsign"},
                                                                 {"swish", "Swish"},
                                                                 {"tanh", "Tanh"}};
  return kNames;
}

}  // namespace

std::span<const KerasRow> AllKerasRows() { return kKerasRows; }

const KerasRow* FindKerasRow(std::string_view domain, std::string_view name) {
  for (const KerasRow& row : kKerasRows) {
    if (row.domain == domain && row.name == name) return &row;
  }
  return nullptr;
}

Conversion FindKerasConversion(std::string_view domain, std::string_view name) {
  if (domain.empty()) return &ConvertCanonical;
  const KerasRow* row = FindKerasRow(domain, name);
  return row == nullptr ? Conversion() : Conversion(row->convert);
}

std::vector<int64_t> KerasToFirst(int spatial) {
  std::vector<int64_t> perm = {0, spatial + 1};
  for (int64_t i = 1; i <= spatial; ++i) perm.push_back(i);
  return perm;
}

std::vector<int64_t> KerasToLast(int spatial) {
  std::vector<int64_t> perm = {0};
  for (int64_t i = 2; i <= spatial + 1; ++i) perm.push_back(i);
  perm.push_back(1);
  return perm;
}

KerasNode::KerasNode(Converter& converter) : c(converter) {
  if (const Attribute* roles = c.node().Find(kRolesAttribute)) {
    if (const auto* list = std::get_if<std::vector<std::string>>(roles)) roles_ = *list;
  }
  const size_t all = c.inputs().size();
  first_weight_ = all - std::min(all, roles_.size());
  count_ = static_cast<int>(first_weight_);
  if (Flag(kMaskedAttribute) && count_ > 0) mask_ = c.in(--count_);
}

// ---- The configuration ----

int64_t KerasNode::Int(const char* key, int64_t fallback) const {
  const Attribute* attribute = c.node().Find(key);
  if (attribute == nullptr) return fallback;
  if (const auto* value = std::get_if<int64_t>(attribute)) return *value;
  if (const auto* list = std::get_if<std::vector<int64_t>>(attribute); list && list->size() == 1)
    return list->front();
  if (const auto* real = std::get_if<double>(attribute)) {
    constexpr double kLargest = 9e15;
    if (*real >= -kLargest && *real <= kLargest) return static_cast<int64_t>(*real);
  }
  return fallback;
}

double KerasNode::Number(const char* key, double fallback) const {
  const std::vector<double> numbers = Numbers(key);
  return numbers.size() == 1 ? numbers[0] : fallback;
}

std::vector<double> KerasNode::Numbers(const char* key) const {
  const Attribute* attribute = c.node().Find(key);
  if (attribute == nullptr) return {};
  if (const auto* value = std::get_if<int64_t>(attribute)) return {static_cast<double>(*value)};
  if (const auto* value = std::get_if<double>(attribute)) return {*value};
  if (const auto* list = std::get_if<std::vector<int64_t>>(attribute))
    return {list->begin(), list->end()};
  if (const auto* list = std::get_if<std::vector<double>>(attribute)) return *list;
  return {};
}

std::vector<int64_t> KerasNode::Ints(const char* key, size_t count, int64_t fallback) const {
  const Attribute* attribute = c.node().Find(key);
  if (attribute != nullptr) {
    if (const auto* list = std::get_if<std::vector<int64_t>>(attribute);
        list != nullptr && list->size() == count)
      return *list;
    if (std::holds_alternative<int64_t>(*attribute)) fallback = std::get<int64_t>(*attribute);
    if (const auto* list = std::get_if<std::vector<int64_t>>(attribute); list && list->size() == 1)
      fallback = list->front();
  }
  return std::vector<int64_t>(count, fallback);
}

absl::StatusOr<std::vector<int64_t>> KerasNode::Axes(const char* key, int rank,
                                                     int64_t fallback) const {
  std::vector<int64_t> axes = c.node().Ints(key);
  if (axes.empty()) axes = {Int(key, fallback)};
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank)
      return c.Error(
          fmt::format("{} is [{}], its input has rank {}", key, fmt::join(axes, ", "), rank));
    if (axis < 0) axis += rank;
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

// ---- Inputs ----

ValueId KerasNode::Weight(std::string_view role) const {
  for (size_t i = 0; i < roles_.size(); ++i) {
    if (roles_[i] == role) return c.in(static_cast<int>(first_weight_ + i));
  }
  return kNone;
}

std::vector<int64_t> KerasNode::WeightDims(std::string_view role) const {
  std::vector<int64_t> dims;
  for (const Dim dim : c.type(Weight(role)).dims)
    dims.push_back(dim.is_static() ? dim.value() : -1);
  return dims;
}

absl::Status KerasNode::RequireInputs(int least, int most) const {
  if (count_ >= least && count_ <= most) {
    for (int i = 0; i < count_; ++i) QUENCH_RETURN_IF_ERROR(c.RequireRank(i));
    return absl::OkStatus();
  }
  return c.Error(
      fmt::format("has {} inputs, expected {}", count_,
                  least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most)));
}

absl::Status KerasNode::RequireRank(int rank) const {
  QUENCH_RETURN_IF_ERROR(RequireInputs(1, 1));
  if (c.Rank(in(0)) == rank) return absl::OkStatus();
  return c.Error(fmt::format("its input has rank {}, expected {}", c.Rank(in(0)), rank));
}

absl::Status KerasNode::RequireDims(std::string_view role, const std::vector<int64_t>& dims) const {
  const std::vector<int64_t> found = WeightDims(role);
  bool same = found.size() == dims.size();
  for (size_t i = 0; same && i < dims.size(); ++i) same = dims[i] < 0 || dims[i] == found[i];
  if (same) return absl::OkStatus();
  std::string wanted;
  for (const int64_t dim : dims)
    wanted += fmt::format("{}{}", wanted.empty() ? "" : ", ", dim < 0 ? "?" : std::to_string(dim));
  return c.Error(fmt::format("its {} has the shape [{}], expected [{}]", role,
                             fmt::join(found, ", "), wanted));
}

int64_t KerasNode::Size(ValueId id, int axis) const {
  const Type& type = c.type(id);
  if (!type.ranked || axis < 0 || axis >= type.rank()) return -1;
  const Dim dim = type.dims[static_cast<size_t>(axis)];
  return dim.is_static() ? dim.value() : -1;
}

// ---- Nodes ----

ValueId KerasNode::Transpose(ValueId id, const std::vector<int64_t>& perm) {
  return id == kNone || std::is_sorted(perm.begin(), perm.end())
             ? id
             : Emit("Transpose", {id}, {{"perm", perm}});
}

ValueId KerasNode::Cast(ValueId id, DataType dtype) {
  if (id == kNone || c.type(id).dtype == dtype) return id;
  return Emit("Cast", {id}, {{"to", static_cast<int64_t>(dtype)}});
}

ValueId KerasNode::Float(ValueId id) {
  return IsFloat(c.type(id).dtype) ? id : Cast(id, DataType::kF32);
}

ValueId KerasNode::Reduce(const char* op, ValueId id, const std::vector<int64_t>& axes, bool keep) {
  return Emit(op, {id, c.Ints(axes)}, {{"keepdims", int64_t{keep}}});
}

ValueId KerasNode::ToFirst(ValueId id, int spatial) {
  return ChannelsFirst() ? id : Transpose(id, KerasToFirst(spatial));
}

ValueId KerasNode::FromFirst(ValueId id, int spatial) {
  return ChannelsFirst() ? id : Transpose(id, KerasToLast(spatial));
}

absl::StatusOr<ValueId> KerasNode::Activate(ValueId id, const char* key) {
  const std::string base = key;
  if (Has(key)) return ActivateAs(id, Text(key));
  // An object: a layer, or a function that somebody registered.
  if (!Has((base + ".class_name").c_str())) return id;
  const std::string name = Text((base + ".class_name").c_str());
  const std::string prefix = base + ".config.";
  const auto number = [&](const char* inner, double fallback) {
    return Number((prefix + inner).c_str(), fallback);
  };
  if (name == "ReLU" && !Has((prefix + "max_value").c_str()) && number("threshold", 0) == 0 &&
      number("negative_slope", 0) == 0)
    return ActivateAs(id, "relu");
  if (name == "ReLU" && number("max_value", 0) == 6 && number("threshold", 0) == 0 &&
      number("negative_slope", 0) == 0)
    return ActivateAs(id, "relu6");
  if (name == "LeakyReLU") {
    const double alpha = number("negative_slope", number("alpha", 0.3));
    return Emit("LeakyRelu", {id}, {{"alpha", alpha}});
  }
  if (name == "Softmax" && number("axis", -1) == -1) return ActivateAs(id, "softmax");
  const std::string function = Text((base + ".config").c_str());
  if (name == "function" && !function.empty()) return ActivateAs(id, function);
  return c.Unsupported(fmt::format("its activation is `{}`", name));
}

absl::StatusOr<ValueId> KerasNode::ActivateAs(ValueId id, const std::string& name) {
  const bool keras3 = c.version() >= 3;
  if (name.empty() || name == "linear") return id;
  const auto clip = [&](ValueId x, double low, double high) {
    return Emit("Clip", {x, Scalar(x, low), Scalar(x, high)});
  };
  if (name == "relu6") return clip(id, 0, 6);
  // max(0, min(1, x / 6 + 1 / 2)) since Keras 3, x / 5 + 1 / 2 before.
  if (name == "hard_sigmoid")
    return Emit("HardSigmoid", {id}, {{"alpha", keras3 ? 1.0 / 6 : 0.2}, {"beta", 0.5}});
  if (name == "hard_tanh") return clip(id, -1, 1);
  if (name == "log_sigmoid") return Emit("Neg", {Emit("Softplus", {Emit("Neg", {id})})});
  const auto found = PlainActivations().find(name);
  if (found == PlainActivations().end())
    return c.Unsupported(fmt::format("its activation is `{}`", name));
  const std::string op = found->second;
  Attributes attributes;
  if (op == "Softmax" || op == "LogSoftmax") attributes["axis"] = int64_t{-1};
  if (op == "LeakyRelu") attributes["alpha"] = 0.2;
  if (op == "Selu") {  // Keras' own constants, in full
    attributes["alpha"] = 1.6732632423543772848170429916717;
    attributes["gamma"] = 1.0507009873554804934193349852946;
  }
  return Emit(op.c_str(), {id}, std::move(attributes));
}

}  // namespace quench::importer
