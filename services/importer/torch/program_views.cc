// Tensors that are parts of others, or the same elements in another order: what is written to one arrives in all.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/torch/program.h"

namespace quench::importer {
namespace {

// How a view is written through: what puts new contents into the tensor that it is part of.
enum class WriteKind : uint8_t {
  kSelf,
  kSelect,
  kSlice,
  kReshape,
  kUnsqueeze,
  kTranspose,
  kPermute,
  kMove
};

const std::map<std::string_view, WriteKind>& Views() {
  static const std::map<std::string_view, WriteKind> kViews = {
      {"alias", WriteKind::kSelf},          {"detach", WriteKind::kSelf},
      {"select", WriteKind::kSelect},       {"slice", WriteKind::kSlice},
      {"view", WriteKind::kReshape},        {"reshape", WriteKind::kReshape},
      {"view_as", WriteKind::kReshape},     {"flatten", WriteKind::kReshape},
      {"unflatten", WriteKind::kReshape},   {"squeeze", WriteKind::kReshape},
      {"squeeze.dim", WriteKind::kReshape}, {"unsqueeze", WriteKind::kUnsqueeze},
      {"transpose", WriteKind::kTranspose}, {"t", WriteKind::kTranspose},
      {"swapaxes", WriteKind::kTranspose},  {"swapdims", WriteKind::kTranspose},
      {"T", WriteKind::kTranspose},         {"numpy_T", WriteKind::kTranspose},
      {"mT", WriteKind::kTranspose},        {"mH", WriteKind::kTranspose},
      {"adjoint", WriteKind::kTranspose},   {"matrix_H", WriteKind::kTranspose},
      {"movedim", WriteKind::kMove},        {"moveaxis", WriteKind::kMove},
      {"permute", WriteKind::kPermute}};
  return kViews;
}

// Views that nothing is written through.
bool IsOnlyRead(std::string_view op) {
  static const std::set<std::string_view> kViews = {"expand",
                                                    "expand_as",
                                                    "broadcast_to",
                                                    "diagonal",
                                                    "unfold",
                                                    "view_as_real.from_complex",
                                                    "real.from_complex",
                                                    "imag.from_complex",
                                                    "view_as_complex.to_complex"};
  return kViews.contains(op);
}

std::optional<int64_t> IntegerOf(const TorchArguments& arguments, std::string_view name) {
  const TorchValue* value = FindArgument(arguments, name);
  if (value == nullptr) return std::nullopt;
  const auto* integer = std::get_if<int64_t>(value);
  return integer == nullptr ? std::nullopt : std::optional(*integer);
}

}  // namespace

absl::StatusOr<Handle> TorchProgram::WriteBack(const TensorCell& view, Handle base, Handle value,
                                               const std::string& name) {
  const CellPtr whole = NewCell(base), part = NewCell(value);
  TorchArguments arguments;
  std::string op;
  switch (Views().at(view.view)) {
    case WriteKind::kSelf:
      return value;
    case WriteKind::kSelect:
    case WriteKind::kSlice:
      op = view.view + "_scatter";
      arguments = {{"self", whole}, {"src", part}};
      arguments.insert(arguments.end(), view.arguments.begin(), view.arguments.end());
      break;
    case WriteKind::kUnsqueeze:
    case WriteKind::kReshape:
      op = "view_as";
      arguments = {{"self", part}, {"other", whole}};
      break;
    case WriteKind::kTranspose:
      op = view.view;
      arguments = {{"self", part}};
      arguments.insert(arguments.end(), view.arguments.begin(), view.arguments.end());
      break;
    case WriteKind::kMove:
      op = view.view;
      arguments = {{"self", part}};
      for (const auto& [argument, axes] : view.arguments)
        arguments.emplace_back(argument == "source" ? "destination" : "source", axes);
      break;
    case WriteKind::kPermute:
      op = "permute_back";
      arguments = {{"self", part}};
      arguments.insert(arguments.end(), view.arguments.begin(), view.arguments.end());
      break;
  }
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Handle> handles,
                          b.AddCall("aten", op, name + "/write", arguments, 1));
  return handles[0];
}

absl::Status TorchProgram::Assign(const CellPtr& cell, Handle handle, const std::string& name) {
  if (in_body()) written_.push_back({cell, cell->handle});
  cell->handle = handle;
  cell->is_number = false;
  ++cell->version;
  if (cell->base == nullptr) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(Sync(cell->base));
  const uint64_t before = cell->base->version;
  if (!Views().contains(cell->view))
    return Unsupported("`{}`: a result of {} is written to in place", name, cell->view);
  QUENCH_ASSIGN_OR_RETURN(const Handle whole, WriteBack(*cell, cell->base->handle, handle, name));
  QUENCH_RETURN_IF_ERROR(Assign(cell->base, whole, name));
  cell->base_version = cell->base->version;
  if (cell->parts == nullptr) return absl::OkStatus();
  for (const std::weak_ptr<TensorCell>& other : *cell->parts) {  // what they are of is as it was
    const CellPtr part = other.lock();
    if (part != nullptr && part->base_version == before) part->base_version = cell->base_version;
  }
  return absl::OkStatus();
}

absl::Status TorchProgram::NoteViews(std::string_view op, const TorchArguments& arguments,
                                     const std::vector<TorchValue>& results) {
  const TorchValue* self = FindArgument(arguments, "self");
  const auto* base = self == nullptr ? nullptr : std::get_if<CellPtr>(self);
  if (base == nullptr) return absl::OkStatus();
  const auto note = [&](const TorchValue& result, std::string_view view, TorchArguments rest) {
    TensorCell& cell = *std::get<CellPtr>(result);
    cell.view = std::string(view);
    cell.base = *base;
    cell.base_version = (*base)->version;
    cell.arguments = std::move(rest);
  };
  if (Views().contains(op) || IsOnlyRead(op)) {
    TorchArguments rest = arguments;
    std::erase_if(rest, [](const auto& argument) { return argument.first == "self"; });
    note(results[0], op, std::move(rest));
    return absl::OkStatus();
  }
  const bool splits = op.starts_with("split") || op == "chunk";
  if (!splits && op != "unbind" && op != "narrow") return absl::OkStatus();
  const int64_t axis = IntegerOf(arguments, "dim").value_or(0);
  const std::optional<int64_t> first =
      op == "narrow" ? IntegerOf(arguments, "start") : std::optional<int64_t>(0);
  if (!first) return absl::OkStatus();
  const auto parts = std::make_shared<std::vector<std::weak_ptr<TensorCell>>>();
  int64_t begin = *first;
  for (size_t i = 0; i < results.size(); ++i) {
    const CellPtr& cell = std::get<CellPtr>(results[i]);
    if (op == "unbind") {
      note(results[i], "select", {{"dim", axis}, {"index", static_cast<int64_t>(i)}});
    } else {
      const Type& type = b.TypeOf(cell->handle);
      const int64_t at = axis < 0 && type.ranked ? axis + type.rank() : axis;
      if (!type.ranked || at < 0 || at >= type.rank()) return absl::OkStatus();
      const Dim size = type.dims[static_cast<size_t>(at)];
      if (!size.is_static()) return absl::OkStatus();
      const int64_t end = begin + size.value();
      // From behind, the end of all is none that could be written.
      const bool last = begin < 0 && end == 0;
      note(
          results[i], "slice",
          {{"dim", axis}, {"start", begin}, {"end", last ? kTorchEnd : end}, {"step", int64_t{1}}});
      begin = end;
    }
    cell->parts = parts;
    parts->push_back(cell);
  }
  return absl::OkStatus();
}

}  // namespace quench::importer
