#include "services/importer/torch/program.h"

#include <algorithm>

#include "common/base/printable.h"
#include "common/base/status.h"

namespace quench::importer {
namespace {

std::string BaseOf(const std::string& op) { return op.substr(0, op.find('.')); }

bool HasComplex(const TorchValue& value) {
  if (const auto* cell = std::get_if<CellPtr>(&value)) return (*cell)->is_complex;
  const std::vector<TorchValue>* items = ItemsOf(value);
  return items != nullptr && std::any_of(items->begin(), items->end(), HasComplex);
}

bool IsInPlace(const std::string& base) {
  return base.size() > 1 && base.ends_with('_') && !base.ends_with("__");
}

}  // namespace

std::string NodeNameIn(const std::string& module, const std::string& node) {
  if (module.empty()) return node;
  std::string name = module + "/";
  std::replace(name.begin(), name.end(), '.', '/');
  return name + node;
}

char KindOf(const TorchValue& value) {
  if (IsNone(value)) return 'n';
  if (std::holds_alternative<bool>(value)) return 'b';
  if (std::holds_alternative<CellPtr>(value)) return 't';
  if (std::holds_alternative<std::string>(value)) return 's';
  if (std::holds_alternative<std::shared_ptr<TorchList>>(value)) return 'l';
  if (std::holds_alternative<double>(value)) return 'f';
  if (const auto* number = std::get_if<RuntimeNumber>(&value))
    return number->kind == RuntimeNumber::Kind::kFloat  ? 'f'
           : number->kind == RuntimeNumber::Kind::kBool ? 'b'
                                                        : 'i';
  if (std::holds_alternative<int64_t>(value)) return 'i';
  return '?';
}

const std::vector<TorchValue>* ItemsOf(const TorchValue& value) {
  const auto* list = std::get_if<std::shared_ptr<TorchList>>(&value);
  return list == nullptr ? nullptr : &(*list)->items;
}

const TorchValue* FindArgument(const TorchArguments& arguments, std::string_view name) {
  for (const auto& [argument, value] : arguments) {
    if (argument == name) return &value;
  }
  return nullptr;
}

// ---- Tensors ----

CellPtr TorchProgram::NewCell(Handle handle) const {
  auto cell = std::make_shared<TensorCell>();
  cell->handle = handle;
  return cell;
}

CellPtr TorchProgram::NewConstant(const std::string& name, const Tensor& tensor) {
  if (!IsComplex(tensor.dtype())) return NewCell(b.AddConstant(name, tensor));
  std::vector<int64_t> dims = tensor.dims();
  dims.push_back(2);
  const DataType part = tensor.dtype() == DataType::kC128 ? DataType::kF64 : DataType::kF32;
  Tensor parts = Tensor::Zeros(part, std::move(dims));
  std::copy(tensor.bytes().begin(), tensor.bytes().end(), parts.mutable_bytes());
  const CellPtr cell = NewCell(b.AddConstant(name, std::move(parts)));
  cell->is_complex = true;
  return cell;
}

absl::Status TorchProgram::Sync(const CellPtr& cell) {
  if (cell->base == nullptr) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(Sync(cell->base));
  if (cell->base->version == cell->base_version) return absl::OkStatus();
  TorchArguments arguments = {{"self", cell->base}};
  arguments.insert(arguments.end(), cell->arguments.begin(), cell->arguments.end());
  QUENCH_RETURN_IF_ERROR(SyncAll(arguments));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Handle> handles,
                          b.AddCall("aten", cell->view, cell->view, arguments, 1));
  if (in_body()) written_.push_back({cell, cell->handle});
  cell->handle = handles[0];
  cell->base_version = cell->base->version;
  ++cell->version;
  return absl::OkStatus();
}

absl::StatusOr<Handle> TorchProgram::Read(const CellPtr& cell) {
  QUENCH_RETURN_IF_ERROR(Sync(cell));
  return cell->handle;
}

absl::Status TorchProgram::SyncAll(TorchArguments& arguments) {
  for (auto& [name, value] : arguments) {
    if (const auto* cell = std::get_if<CellPtr>(&value)) QUENCH_RETURN_IF_ERROR(Sync(*cell));
    if (const std::vector<TorchValue>* items = ItemsOf(value)) {
      for (const TorchValue& item : *items) {
        if (const auto* cell = std::get_if<CellPtr>(&item)) QUENCH_RETURN_IF_ERROR(Sync(*cell));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status TorchProgram::UnknownError(const std::string& what) const {
  if (!b.problem().ok()) return b.problem();
  return Unsupported("{} is known only at run time", what);
}

absl::StatusOr<Type> TorchProgram::TypeOf(const CellPtr& cell) {
  QUENCH_ASSIGN_OR_RETURN(const Handle handle, Read(cell));
  Type type = b.TypeOf(handle);
  if (cell->is_complex && type.ranked && type.rank() > 0) {
    type.dims.pop_back();
    type.dtype = type.dtype == DataType::kF64 ? DataType::kC128 : DataType::kC64;
  }
  return type;
}

absl::StatusOr<int> TorchProgram::RankOf(const CellPtr& cell) {
  QUENCH_ASSIGN_OR_RETURN(const Handle handle, Read(cell));
  if (!b.IsRanked(handle)) return UnknownError(fmt::format("the rank of `{}`", b.NameOf(handle)));
  return b.TypeOf(handle).rank() - (cell->is_complex ? 1 : 0);
}

absl::Status TorchProgram::RequireReal(const CellPtr& cell) const {
  if (!cell->is_complex) return absl::OkStatus();
  return Unsupported(
      "a complex tensor is an output, or a branch or loop that a run decides about has it: "
      "`torch.view_as_real` makes a real one of it");
}

absl::StatusOr<Handle> TorchProgram::HandleOf(const TorchValue& value) {
  if (const auto* cell = std::get_if<CellPtr>(&value)) {
    QUENCH_RETURN_IF_ERROR(RequireReal(*cell));
    return Read(*cell);
  }
  if (const auto* number = std::get_if<RuntimeNumber>(&value)) return number->handle;
  if (const auto* integer = std::get_if<int64_t>(&value))
    return b.AddConstant("number", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{*integer}));
  if (const auto* real = std::get_if<double>(&value))
    return b.AddConstant("number", Tensor::ScalarF32(static_cast<float>(*real)));
  if (const auto* flag = std::get_if<bool>(&value))
    return b.AddConstant("flag",
                         Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{uint8_t{*flag}}));
  return InvalidArgument("neither a tensor nor a number");
}

TorchValue TorchProgram::Settle(RuntimeNumber number) {
  switch (number.kind) {
    case RuntimeNumber::Kind::kInt:
      if (const std::optional<int64_t> known = b.KnownInt(number.handle)) return *known;
      break;
    case RuntimeNumber::Kind::kBool:
      if (const std::optional<double> known = b.KnownNumber(number.handle)) return *known != 0;
      break;
    case RuntimeNumber::Kind::kFloat:
      if (const std::optional<double> known = b.KnownNumber(number.handle)) return *known;
      break;
  }
  return number;
}

absl::StatusOr<TorchValue> TorchProgram::NumberOf(const CellPtr& cell, RuntimeNumber::Kind kind) {
  QUENCH_ASSIGN_OR_RETURN(Handle handle, Read(cell));
  const Type type = b.TypeOf(handle);
  TorchValue known = Settle({handle, kind});
  if (!std::holds_alternative<RuntimeNumber>(known)) return known;
  if (!type.ranked) return UnknownError(fmt::format("the shape of `{}`", b.NameOf(handle)));
  if (type.rank() > 0)
    handle = b.AddPlain("Reshape", "item", {handle, b.AddConstant("scalar", Tensor::I64({}))});
  const DataType wanted = kind == RuntimeNumber::Kind::kInt    ? DataType::kI64
                          : kind == RuntimeNumber::Kind::kBool ? DataType::kBool
                                                               : DataType::kF32;
  if (type.dtype != wanted)
    handle = b.AddPlain("Cast", "number", {handle}, {{"to", static_cast<int64_t>(wanted)}});
  return TorchValue(RuntimeNumber{handle, kind});
}

// ---- Calls ----

bool TorchProgram::Knows(const std::string& domain, const std::string& op) const {
  const std::string base = BaseOf(op);
  return HasTorchRow(domain, base) ||
         (IsInPlace(base) && HasTorchRow(domain, base.substr(0, base.size() - 1)));
}

TorchValue TorchProgram::CallUnknown(const std::string& domain, const std::string& op,
                                     const std::string& name, size_t outputs) {
  UnsupportedOp& noted = unsupported[{domain, op}];
  noted.domain = Printable(domain);
  noted.op = Printable(op);
  noted.nodes.push_back(Printable(name));
  std::vector<TorchValue> items;
  for (size_t i = 0; i < std::max<size_t>(outputs, 1); ++i) {
    absl::StatusOr<std::vector<Handle>> handles = b.AddCall(domain, op, name, {}, 1);
    items.push_back(NewCell(handles.ok() ? handles->front() : -1));
  }
  return outputs > 1 ? MakeList(std::move(items), true) : items[0];
}

absl::StatusOr<size_t> TorchProgram::CountOutputs(const TorchRow& row,
                                                  const TorchArguments& arguments) {
  const TorchValue* tensors = FindArgument(arguments, "tensors");
  if (tensors != nullptr) {
    const std::vector<TorchValue>* items = ItemsOf(*tensors);
    return items == nullptr ? 1 : items->size();
  }
  const TorchValue* self = FindArgument(arguments, "self");
  if (self == nullptr) self = FindArgument(arguments, "condition");
  const auto* cell = self == nullptr ? nullptr : std::get_if<CellPtr>(self);
  if (cell == nullptr) return InvalidArgument("{}: self is not a tensor", row.name);
  for (const char* list : {"split_sizes", "indices"}) {
    const TorchValue* sizes = FindArgument(arguments, list);
    if (sizes == nullptr || ItemsOf(*sizes) == nullptr) continue;
    return ItemsOf(*sizes)->size() + (row.name.starts_with("tensor_split") ? 1 : 0);
  }
  QUENCH_ASSIGN_OR_RETURN(const Type type, TypeOf(*cell));
  if (!type.ranked) return UnknownError(fmt::format("{}: the rank of its input", row.name));
  if (row.name == "nonzero_numpy" || row.name == "where.all")
    return std::max<size_t>(type.dims.size(), 1);
  const auto integer = [&](const char* name, int64_t fallback) {
    const TorchValue* value = FindArgument(arguments, name);
    const auto* number = value == nullptr ? nullptr : std::get_if<int64_t>(value);
    return number == nullptr ? fallback : *number;
  };
  int64_t axis = integer("dim", 0);
  if (axis < 0) axis += type.rank();
  if (axis < 0 || axis >= type.rank())
    return InvalidArgument("{}: dim is {}, its input has rank {}", row.name, integer("dim", 0),
                           type.rank());
  const Dim dim = type.dims[static_cast<size_t>(axis)];
  if (row.name.starts_with("tensor_split")) return static_cast<size_t>(integer("sections", 1));
  if (!dim.is_static()) return UnknownError(fmt::format("{}: how many parts there are", row.name));
  int64_t parts = dim.value();
  if (row.name == "chunk") {
    const int64_t chunks = std::max<int64_t>(integer("chunks", 1), 1);
    const int64_t size = std::max<int64_t>((dim.value() + chunks - 1) / chunks, 1);
    parts = std::max<int64_t>((dim.value() + size - 1) / size, 1);
  } else if (row.name == "split") {
    const int64_t size = integer("split_size", 0);
    if (size < 1) return UnknownError(fmt::format("{}: the size of its parts", row.name));
    parts = std::max<int64_t>((dim.value() + size - 1) / size, 1);
  }
  constexpr int64_t kMaxParts = 10'000;
  if (parts > kMaxParts)
    return absl::ResourceExhaustedError(
        fmt::format("{}: makes {} tensors, at most {} are", row.name, parts, kMaxParts));
  return static_cast<size_t>(parts);
}

absl::StatusOr<TorchValue> TorchProgram::CallRow(const TorchRow& row, const std::string& name,
                                                 TorchArguments arguments, size_t outputs) {
  QUENCH_RETURN_IF_ERROR(SyncAll(arguments));
  if (row.outputs > 0) {
    outputs = static_cast<size_t>(row.outputs);
  } else if (outputs == 0) {
    QUENCH_ASSIGN_OR_RETURN(outputs, CountOutputs(row, arguments));
  }
  QUENCH_ASSIGN_OR_RETURN(
      const std::vector<Handle> handles,
      b.AddCall(std::string(row.domain), std::string(row.name), name, arguments, outputs));
  std::vector<TorchValue> results;
  const TorchValue* asked = FindArgument(arguments, "return_complex");
  const bool* is_asked = asked == nullptr ? nullptr : std::get_if<bool>(asked);
  const bool is_complex = row.name.ends_with("complex") && !row.name.ends_with(".from_complex");
  for (const Handle handle : handles) {
    const CellPtr cell = NewCell(handle);
    cell->is_complex = is_complex || (is_asked != nullptr && *is_asked);
    results.push_back(cell);
  }
  if (row.domain == "aten") QUENCH_RETURN_IF_ERROR(NoteViews(row.name, arguments, results));
  if (row.outputs == 1) return results[0];
  return MakeList(std::move(results), row.outputs != 0);
}

// The result of the operator without `_` becomes what the tensor is.
absl::StatusOr<TorchValue> TorchProgram::CallInPlace(const std::string& domain,
                                                     const std::string& base,
                                                     const std::string& name,
                                                     std::vector<TorchValue> positional,
                                                     TorchArguments named) {
  const CellPtr* self = nullptr;
  if (!positional.empty()) self = std::get_if<CellPtr>(&positional[0]);
  for (const char* first : {"self", "input"}) {
    const TorchValue* value = FindArgument(named, first);
    if (self == nullptr && value != nullptr) self = std::get_if<CellPtr>(value);
  }
  if (self == nullptr) return InvalidArgument("`{}`: {}_ writes to no tensor", name, base);
  const CellPtr target = *self;
  if (target->is_complex) return Unsupported("`{}`: writes to a complex tensor", name);
  // For some operators the plain form calls `input` what this one calls `self`.
  for (auto& [argument, value] : named) {
    if (argument == "self" && (base == "dropout" || base == "feature_dropout")) argument = "input";
  }
  QUENCH_ASSIGN_OR_RETURN(const Type before, TypeOf(target));
  QUENCH_ASSIGN_OR_RETURN(TorchValue result,
                          Call(domain, base, name, std::move(positional), std::move(named), 1));
  const auto* cell = std::get_if<CellPtr>(&result);
  if (cell == nullptr) return InvalidArgument("`{}`: {} has several results", name, base);
  if (*cell == target) return result;
  QUENCH_ASSIGN_OR_RETURN(Handle handle, Read(*cell));
  const DataType now = b.TypeOf(handle).dtype;
  if (before.dtype != now && before.dtype != DataType::kUndefined && now != DataType::kUndefined)
    handle =
        b.AddPlain("Cast", name + "/cast", {handle}, {{"to", static_cast<int64_t>(before.dtype)}});
  QUENCH_RETURN_IF_ERROR(Assign(target, handle, name));
  return TorchValue(target);
}

absl::StatusOr<TorchValue> TorchProgram::Call(const std::string& domain, const std::string& op,
                                              const std::string& name,
                                              std::vector<TorchValue> positional,
                                              TorchArguments named, size_t outputs) {
  QUENCH_RETURN_IF_ERROR(context_.Check());
  if (b.num_nodes() > kMaxTorchNodes)
    return absl::ResourceExhaustedError(
        fmt::format("the model becomes more than {} nodes", kMaxTorchNodes));
  const std::string base = BaseOf(op);
  if (domain == "aten" && IsInPlace(base) && !HasTorchRow(domain, base))
    return CallInPlace(domain, base.substr(0, base.size() - 1), name, std::move(positional),
                       std::move(named));
  if (!HasTorchRow(domain, base)) return CallUnknown(domain, base, name, outputs);
  TorchCallShape shape;
  for (const TorchValue& value : positional) shape.kinds += KindOf(value);
  for (const auto& [argument, value] : named) shape.names.push_back(argument);
  shape.is_complex =
      std::any_of(positional.begin(), positional.end(), HasComplex) ||
      std::any_of(named.begin(), named.end(), [](const auto& v) { return HasComplex(v.second); });
  const TorchRow* row = ResolveTorchRow(domain, base, shape);
  if (row == nullptr && shape.is_complex)
    return Unsupported("`{}`: {}::{} of complex numbers", Printable(name), domain, Printable(base));
  if (row == nullptr) {
    return Unsupported(
        "`{}`: {}::{} is called with {} arguments{}{}, which no known overload takes",
        Printable(name), domain, Printable(base), positional.size(), named.empty() ? "" : " and ",
        fmt::join(shape.names, ", "));
  }
  const std::vector<std::string_view> names = ArgumentsOf(*row);
  TorchArguments arguments;
  for (size_t i = 0; i < positional.size(); ++i)
    arguments.emplace_back(std::string(names[i]), std::move(positional[i]));
  for (auto& argument : named) arguments.push_back(std::move(argument));
  absl::StatusOr<TorchValue> result = CallRow(*row, name, std::move(arguments), outputs);
  if (!result.ok()) return Annotate(result.status(), fmt::format("`{}`", Printable(name)));
  return result;
}

}  // namespace quench::importer
