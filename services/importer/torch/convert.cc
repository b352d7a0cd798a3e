#include "services/importer/torch/convert.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"
#include "services/importer/torch/graph_builder.h"
#include "services/importer/torch/tensors.h"

namespace quench::importer {
namespace {

constexpr TorchRow kRows[] = {
#define QUENCH_TORCH_OP(domain, name, canonical, converter, outputs, arguments) \
  {domain, name, canonical, &torch_ops::converter, outputs, arguments},
#include "services/importer/torch/aten_ops.def"
#undef QUENCH_TORCH_OP
};

// Nodes that readers make are canonical already, but for the bodies of If and Loop.
absl::Status ConvertOwn(Converter& c) {
  const std::string& op = c.node().op;
  if (op == "If" || op == "Loop") return c.FinalControl();
  return c.Final(op, c.inputs(), c.node().attributes);
}

std::string_view BaseName(std::string_view name) { return name.substr(0, name.find('.')); }

const std::multimap<std::pair<std::string_view, std::string_view>, const TorchRow*>& RowsByBase() {
  static const auto* const kIndex = [] {
    auto* rows =
        new std::multimap<std::pair<std::string_view, std::string_view>, const TorchRow*>();
    for (const TorchRow& row : kRows)
      rows->emplace(std::pair{row.domain, BaseName(row.name)}, &row);
    return rows;
  }();
  return *kIndex;
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// Whether an argument of that kind can be that parameter: `name:kinds` says which are taken.
bool Takes(std::string_view parameter, char kind) {
  const size_t colon = parameter.find(':');
  if (colon == std::string_view::npos || kind == '?') return true;
  if (kind == 'n') return parameter.find('k', colon) == std::string_view::npos;
  return parameter.find(kind, colon) != std::string_view::npos;
}

bool Fits(const TorchRow& row, const TorchCallShape& call) {
  const bool takes_complex = row.name.ends_with(".complex") || row.name.ends_with(".from_complex");
  if (takes_complex != call.is_complex) return false;
  const std::vector<std::string_view> parameters = Words(row.arguments);
  if (call.kinds.size() > parameters.size()) return false;
  for (size_t i = 0; i < call.kinds.size(); ++i) {
    if (!Takes(parameters[i], call.kinds[i])) return false;
  }
  const std::vector<std::string_view> names = ArgumentsOf(row);
  for (size_t i = call.kinds.size(); i < names.size(); ++i) {
    const bool named =
        std::find(call.names.begin(), call.names.end(), names[i]) != call.names.end();
    if (parameters[i].starts_with('!') && !named) return false;
  }
  return std::all_of(call.names.begin(), call.names.end(), [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

// How strong a type is among those of its category, and which category: torch's promotion.
int CategoryOf(DataType dtype) { return dtype == DataType::kBool ? 0 : IsInteger(dtype) ? 1 : 2; }

DataType Stronger(DataType a, DataType b) {
  if (a == b) return a;
  if (CategoryOf(a) != CategoryOf(b)) return CategoryOf(a) > CategoryOf(b) ? a : b;
  if (CategoryOf(a) == 2 && DataTypeBits(a) == DataTypeBits(b)) return DataType::kF32;  // f16, bf16
  if (CategoryOf(a) == 1 && IsUnsigned(a) != IsUnsigned(b)) {
    const DataType plain = IsUnsigned(a) ? b : a, unsigned_one = IsUnsigned(a) ? a : b;
    if (DataTypeBits(plain) > DataTypeBits(unsigned_one)) return plain;
    return DataTypeBits(unsigned_one) == 8 ? DataType::kI16 : DataType::kI64;
  }
  return DataTypeBits(a) > DataTypeBits(b) ? a : b;
}

}  // namespace

std::span<const TorchRow> AllTorchRows() { return kRows; }

std::vector<std::string_view> ArgumentsOf(const TorchRow& row) {
  std::vector<std::string_view> names = Words(row.arguments);
  for (std::string_view& name : names) {
    if (name.starts_with('!')) name.remove_prefix(1);
    name = name.substr(0, name.find(':'));
  }
  return names;
}

const TorchRow* ResolveTorchRow(std::string_view domain, std::string_view op,
                                const TorchCallShape& call) {
  const auto [first, last] = RowsByBase().equal_range({domain, BaseName(op)});
  for (auto row = first; row != last; ++row) {
    if (Fits(*row->second, call)) return row->second;
  }
  return nullptr;
}

bool HasTorchRow(std::string_view domain, std::string_view op) {
  return RowsByBase().contains({domain, BaseName(op)});
}

Conversion FindTorchConversion(std::string_view domain, std::string_view name) {
  if (domain.empty()) return &ConvertOwn;
  const auto [first, last] = RowsByBase().equal_range({domain, BaseName(name)});
  for (auto row = first; row != last; ++row) {
    if (row->second->name == name) return row->second->convert;
  }
  return {};
}

AtenNode::AtenNode(Converter& converter) : c(converter) {
  if (const Attribute* names = c.node().Find(kInputNames))
    names_ = std::get_if<std::vector<std::string>>(names);
}

std::string AtenNode::Canonical() const {
  const Node& node = c.node();
  const auto [first, last] = RowsByBase().equal_range({node.domain, BaseName(node.op)});
  const auto row = std::find_if(
      first, last, [&](const auto& candidate) { return candidate.second->name == node.op; });
  QUENCH_CHECK(row != last);  // a converter runs for a row
  return std::string(row->second->canonical);
}

// ---- Arguments ----

ValueId AtenNode::In(std::string_view name) const {
  if (names_ == nullptr) return kNone;
  for (size_t i = 0; i < names_->size(); ++i) {
    if ((*names_)[i] == name) return c.in(static_cast<int>(i));
  }
  return kNone;
}

bool AtenNode::Has(std::string_view name) const {
  return In(name) != kNone || c.node().Find(std::string(name)) != nullptr;
}

std::vector<ValueId> AtenNode::List(const char* name) const {
  std::vector<ValueId> ids;
  if (In(name) != kNone) return {In(name)};
  const std::vector<int64_t> marks = c.node().Ints(name);
  for (size_t i = 0; i < marks.size(); ++i)
    ids.push_back(marks[i] == kInInput ? In(fmt::format("{}.{}", name, i)) : kNone);
  return ids;
}

int64_t AtenNode::Int(const char* name, int64_t fallback) const {
  if (const std::optional<int64_t> known = KnownInt(name)) return *known;
  const Attribute* attribute = c.node().Find(name);
  if (attribute == nullptr) return fallback;
  if (const auto* list = std::get_if<std::vector<int64_t>>(attribute); list && list->size() == 1)
    return list->front();
  if (const auto* real = std::get_if<double>(attribute); real && std::abs(*real) < 9e15)
    return static_cast<int64_t>(*real);
  return fallback;
}

std::optional<int64_t> AtenNode::KnownInt(const char* name) const {
  if (const Attribute* attribute = c.node().Find(name)) {
    if (const auto* value = std::get_if<int64_t>(attribute)) return *value;
    return std::nullopt;
  }
  const Tensor* tensor = c.constant(In(name));
  if (tensor == nullptr || tensor->size() != 1 || !IsInteger(tensor->dtype())) return std::nullopt;
  return tensor->IntAt(0);
}

double AtenNode::Number(const char* name, double fallback) const {
  const std::vector<double> numbers = Numbers(name);
  if (numbers.size() == 1) return numbers[0];
  const Tensor* tensor = c.constant(In(name));
  return tensor != nullptr && tensor->size() == 1 ? tensor->FloatAt(0) : fallback;
}

std::string AtenNode::Text(const char* name, const char* fallback) const {
  return c.node().String(name, fallback);
}

std::vector<double> AtenNode::Numbers(const char* name) const {
  const Attribute* attribute = c.node().Find(name);
  if (attribute == nullptr) return {};
  if (const auto* value = std::get_if<int64_t>(attribute)) return {static_cast<double>(*value)};
  if (const auto* value = std::get_if<double>(attribute)) return {*value};
  if (const auto* list = std::get_if<std::vector<int64_t>>(attribute))
    return {list->begin(), list->end()};
  if (const auto* list = std::get_if<std::vector<double>>(attribute)) return *list;
  return {};
}

std::optional<std::vector<int64_t>> AtenNode::Ints(const char* name) const {
  const Attribute* attribute = c.node().Find(name);
  if (attribute == nullptr) {
    const std::optional<int64_t> known = KnownInt(name);
    return known ? std::optional(std::vector<int64_t>{*known}) : std::nullopt;
  }
  if (const auto* value = std::get_if<int64_t>(attribute)) return std::vector<int64_t>{*value};
  const auto* list = std::get_if<std::vector<int64_t>>(attribute);
  if (list == nullptr) return std::nullopt;
  std::vector<int64_t> ints = *list;
  for (size_t i = 0; i < ints.size(); ++i) {
    if (ints[i] == kAbsent) return std::nullopt;
    if (ints[i] != kInInput) continue;
    const std::optional<int64_t> known = KnownInt(fmt::format("{}.{}", name, i).c_str());
    if (!known) return std::nullopt;
    ints[i] = *known;
  }
  return ints;
}

absl::StatusOr<std::vector<int64_t>> AtenNode::IntsOf(const char* name, size_t count,
                                                      int64_t fallback) const {
  if (!Has(name)) return std::vector<int64_t>(count, fallback);
  std::optional<std::vector<int64_t>> ints = Ints(name);
  if (!ints) return c.Unsupported(fmt::format("{} is known only at run time", name));
  if (ints->empty()) return std::vector<int64_t>(count, fallback);
  if (ints->size() == 1) return std::vector<int64_t>(count, ints->front());
  if (ints->size() != count)
    return c.Error(fmt::format("{} has {} numbers, expected {}", name, ints->size(), count));
  return *std::move(ints);
}

ValueId AtenNode::Sizes(const char* name) {
  if (const std::optional<std::vector<int64_t>> known = Ints(name)) return c.Ints(*known);
  const std::vector<int64_t> marks = c.node().Ints(name);
  if (marks.empty()) return In(name) == kNone ? c.Ints({}) : Size1(name, 0);
  std::vector<ValueId> parts;
  for (size_t i = 0; i < marks.size(); ++i) {
    const ValueId id = In(fmt::format("{}.{}", name, i));
    parts.push_back(marks[i] == kInInput ? Emit("Reshape", {Cast(id, DataType::kI64), c.Ints({1})})
                                         : c.Ints({marks[i]}));
  }
  return parts.size() == 1 ? parts[0] : Emit("Concat", parts, {{"axis", int64_t{0}}});
}

ValueId AtenNode::Size1(const char* name, int64_t fallback) {
  if (const std::optional<int64_t> known = KnownInt(name)) return c.Ints({*known});
  const ValueId id = In(name);
  if (id == kNone) return c.Ints({fallback});
  return Emit("Reshape", {Cast(id, DataType::kI64), c.Ints({1})});
}

ValueId AtenNode::Operand(const char* name, DataType dtype) {
  const ValueId id = In(name);
  return id != kNone ? Cast(id, dtype) : c.Scalar(dtype, Number(name));
}

absl::StatusOr<DataType> AtenNode::Dtype(const char* name, DataType fallback) const {
  if (!Has(name)) return fallback;
  absl::StatusOr<DataType> dtype = DataTypeOfScalarType(Int(name, -1));
  if (!dtype.ok()) return c.Unsupported(MessageOf(dtype.status()));
  return dtype;
}

absl::StatusOr<int64_t> AtenNode::Axis(const char* name, int64_t rank, int64_t fallback) const {
  if (Has(name) && !Ints(name))
    return c.Unsupported(fmt::format("{} is known only at run time", name));
  const int64_t axis = Int(name, fallback), limit = std::max<int64_t>(rank, 1);
  if (axis < -limit || axis >= limit)
    return c.Error(fmt::format("{} is {}, its input has rank {}", name, axis, rank));
  return axis < 0 ? axis + limit : axis;
}

absl::StatusOr<std::vector<int64_t>> AtenNode::Axes(const char* name, int64_t rank) const {
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  const std::optional<std::vector<int64_t>> given = Ints(name);
  if (!given && Has(name)) return c.Unsupported(fmt::format("{} is known only at run time", name));
  if (!given || given->empty() || rank == 0) return axes;
  axes = *given;
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank)
      return c.Error(fmt::format("{} has {}, its input has rank {}", name, axis, rank));
    if (axis < 0) axis += rank;
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    return c.Error(fmt::format("{} names an axis twice", name));
  return axes;
}

absl::Status AtenNode::RequireRank(ValueId id, const char* name) const {
  if (id == kNone) return c.Error(fmt::format("{} is not a tensor", name));
  if (c.Rank(id) >= 0) return absl::OkStatus();
  return c.Unsupported(fmt::format("the rank of {} is unknown", name));
}

int64_t AtenNode::SizeAt(ValueId id, int64_t axis) const {
  const Type& type = c.type(id);
  if (!type.ranked || axis < 0 || axis >= type.rank()) return -1;
  const Dim dim = type.dims[static_cast<size_t>(axis)];
  return dim.is_static() ? dim.value() : -1;
}

// ---- Nodes ----

ValueId AtenNode::Cast(ValueId id, DataType dtype) {
  if (id == kNone || c.type(id).dtype == dtype) return id;
  return Emit("Cast", {id}, {{"to", static_cast<int64_t>(dtype)}});
}

ValueId AtenNode::Float(ValueId id) {
  return IsFloat(c.type(id).dtype) ? id : Cast(id, DataType::kF32);
}

ValueId AtenNode::Transpose(ValueId id, const std::vector<int64_t>& perm) {
  return std::is_sorted(perm.begin(), perm.end()) ? id : Emit("Transpose", {id}, {{"perm", perm}});
}

// Tensors with axes count before scalar tensors, and these before numbers, of which only the category counts.
DataType AtenNode::Common(const char* a, const char* b) const {
  const Attribute* marked = c.node().Find(kNumberNames);
  const std::vector<std::string> numbers =
      marked == nullptr ? std::vector<std::string>{} : std::get<std::vector<std::string>>(*marked);
  DataType of[3] = {DataType::kUndefined, DataType::kUndefined, DataType::kUndefined};
  for (const char* name : {a, b}) {
    const ValueId id = In(name);
    DataType dtype = DataType::kUndefined;
    size_t rank = 2;
    const bool is_number = std::find(numbers.begin(), numbers.end(), name) != numbers.end();
    if (id != kNone && is_number) {
      dtype = IsFloat(c.type(id).dtype) ? DataType::kF32 : DataType::kI64;
    } else if (id != kNone) {
      dtype = c.type(id).dtype;
      rank = c.Rank(id) == 0 ? 1 : 0;
    } else if (const Attribute* attribute = c.node().Find(name)) {
      dtype = std::holds_alternative<double>(*attribute) ? DataType::kF32 : DataType::kI64;
    }
    if (dtype != DataType::kUndefined)
      of[rank] = of[rank] == DataType::kUndefined ? dtype : Stronger(of[rank], dtype);
  }
  DataType result = DataType::kUndefined;
  for (const DataType dtype : of) {
    if (dtype == DataType::kUndefined) continue;
    if (result == DataType::kUndefined || CategoryOf(dtype) > CategoryOf(result)) result = dtype;
  }
  return result;
}

}  // namespace quench::importer
