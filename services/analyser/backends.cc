#include "services/analyser/backends.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "common/base/near_names.h"
#include "common/base/status.h"
#include "common/ops/op.h"

namespace quench::analyser {
namespace {

// ---- types ----

struct TypeClass {
  enum : unsigned { F = 1, I = 2, B = 4, Q = 8, FI = F | I, FIB = F | I | B };
};

unsigned ClassOf(DataType type) {
  switch (type) {
    case DataType::kF32:
    case DataType::kF16:
    case DataType::kBF16:
      return TypeClass::F;
    case DataType::kI32:
    case DataType::kI64:
      return TypeClass::I;
    case DataType::kBool:
      return TypeClass::B;
    case DataType::kI8:
    case DataType::kU8:
      return TypeClass::Q;
    default:
      return 0;
  }
}

// ---- conditions: what is missing, or "" ----

const Tensor* ConstantInput(const Graph& graph, const Node& node, size_t input) {
  if (input >= node.inputs.size() || node.inputs[input] == kNone) return nullptr;
  const auto& constant = graph.value(node.inputs[input]).constant;
  return constant == nullptr ? nullptr : &constant->tensor;
}

bool IsGiven(const Node& node, size_t input) {
  return input < node.inputs.size() && node.inputs[input] != kNone;
}

std::string Always(const Graph&, const Node&) { return ""; }

std::string HasConstantFrom(const Graph& graph, const Node& node, size_t first, size_t last) {
  for (size_t i = first; i <= last; ++i) {
    if (IsGiven(node, i) && ConstantInput(graph, node, i) == nullptr)
      return fmt::format("input {} is not a constant", i);
  }
  return "";
}

std::string HasConstantOperands(const Graph& graph, const Node& node) {
  return HasConstantFrom(graph, node, 1, 1);
}
std::string HasConstantDepth(const Graph& graph, const Node& node) {
  return HasConstantFrom(graph, node, 1, 1);
}
std::string HasConstantAxes(const Graph& graph, const Node& node) {
  return HasConstantFrom(graph, node, 3, 3);
}
std::string HasConstantAxesOfPad(const Graph& graph, const Node& node) {
  return HasConstantFrom(graph, node, 3, 3);
}

std::string HasOneOutput(const Graph&, const Node& node) {
  const auto used = std::count_if(node.outputs.begin(), node.outputs.end(),
                                  [](ValueId id) { return id != kNone; });
  return used == 1 ? "" : "it has more than one output";
}

std::string IsPlainPool(const Graph& graph, const Node& node) {
  const int rank = graph.value(node.inputs[0]).type.rank();
  if (rank != 4 && rank != 5) return fmt::format("its input has rank {}, not 4 or 5", rank);
  for (const int64_t dilation : node.Ints("dilations")) {
    if (dilation != 1) return "it has dilations";
  }
  return HasOneOutput(graph, node);
}

std::string HasRank4(const Graph& graph, const Node& node) {
  const int rank = graph.value(node.inputs[0]).type.rank();
  return rank == 4 ? "" : fmt::format("its input has rank {}, not 4", rank);
}

std::string HasStaticDims(const Graph& graph, const Node& node) {
  return graph.value(node.inputs[0]).type.is_static() ? "" : "its input's dims are not fixed";
}

std::string HasZeroPointZero(const Graph& graph, const Node& node) {
  if (!IsGiven(node, 2)) return "";
  const Tensor* zero = ConstantInput(graph, node, 2);
  if (zero == nullptr) return "its zero point is not a constant";
  for (int64_t i = 0; i < zero->size(); ++i) {
    if (zero->IntAt(i) != 0) return "its zero point is not 0";
  }
  return "";
}

std::string IsPlainResize(const Graph&, const Node& node) {
  static const std::set<std::string> kCoordinates = {
      "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "asymmetric", "align_corners"};
  const std::string where = node.String("coordinate_transformation_mode", "half_pixel");
  const std::string mode = node.String("mode", "nearest");
  if (kCoordinates.count(where) == 0) return fmt::format("coordinates are `{}`", where);
  if (mode != "nearest" && mode != "linear") return fmt::format("mode is `{}`", mode);
  if (node.Int("antialias", 0) != 0) return "it has antialias";
  const std::string policy = node.String("keep_aspect_ratio_policy", "stretch");
  return policy == "stretch" ? "" : fmt::format("its aspect ratio policy is `{}`", policy);
}

std::string IsPlainScatter(const Graph&, const Node& node) {
  const std::string reduction = node.String("reduction", "none");
  return reduction == "none" ? "" : fmt::format("it has reduction `{}`", reduction);
}

std::string IsSmallTopK(const Graph& graph, const Node& node) {
  if (node.Int("sorted", 1) != 1) return "its output is not sorted";
  const Tensor* k = ConstantInput(graph, node, 1);
  return k != nullptr && k->size() == 1 && k->IntAt(0) >= 3840 ? "K is not below 3840" : "";
}

std::string IsPlainRecurrent(const Graph&, const Node& node) {
  const auto* names = node.Find("activations");
  const auto* list = names == nullptr ? nullptr : std::get_if<std::vector<std::string>>(names);
  if (list == nullptr || node.String("direction", "forward") != "bidirectional") return "";
  const size_t half = list->size() / 2;
  return std::equal(list->begin(), list->begin() + static_cast<ptrdiff_t>(half),
                    list->begin() + static_cast<ptrdiff_t>(half))
             ? ""
             : "its directions have different activations";
}

std::string IsPlainLstm(const Graph& graph, const Node& node) {
  if (node.Int("input_forget", 0) != 0) return "it has input_forget";
  if (node.Int("layout", 0) != 0) return "its layout is not 0";
  return IsPlainRecurrent(graph, node);
}

// ---- the table ----

struct SupportRow {
  unsigned types;
  std::string (*condition)(const Graph&, const Node&);
};
using Rows = std::map<std::string, SupportRow, std::less<>>;

std::string RefusesByRows(const Rows& rows, const Graph& graph, const Node& node) {
  const auto row = rows.find(node.op);
  if (row == rows.end()) return "it has no such operator";
  for (const std::vector<ValueId>* list : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *list) {
      if (id == kNone || ClassOf(graph.value(id).type.dtype) != 0) continue;
      return fmt::format("`{}` is {}", graph.value(id).name,
                         DataTypeName(graph.value(id).type.dtype));
    }
  }
  const ValueId first =
      !node.inputs.empty() && node.inputs[0] != kNone ? node.inputs[0] : node.outputs[0];
  const DataType type = graph.value(first).type.dtype;
  if ((ClassOf(type) & row->second.types) == 0)
    return fmt::format("it does not take {}", DataTypeName(type));
  return row->second.condition(graph, node);
}

bool IsOnnx(const Node& node) {
  const ops::OpDef* op = ops::FindOp(node.op);
  return op != nullptr && node.op.rfind("q.", 0) != 0;
}

Backend Make(const std::string& name, const std::string& description, Rows rows) {
  Backend backend{name, description, nullptr};
  if (rows.empty()) {
    backend.refuses = [](const Graph&, const Node& node) -> std::string {
      return IsOnnx(node) ? "" : "it is an operator of Quench's own";
    };
  } else {
    backend.refuses = [rows = std::move(rows)](const Graph& graph, const Node& node) {
      return RefusesByRows(rows, graph, node);
    };
  }
  return backend;
}

}  // namespace

std::vector<Backend> Backends() {
  std::map<std::string, Rows> rows;
#define QUENCH_BACKEND(name, description)
#define QUENCH_SUPPORTS(backend, op, types, condition) \
  rows[#backend][#op] = {TypeClass::types, condition};
#include "services/analyser/backends.def"
#undef QUENCH_BACKEND
#undef QUENCH_SUPPORTS
  std::vector<Backend> all;
#define QUENCH_BACKEND(name, description) all.push_back(Make(#name, description, rows[#name]));
#define QUENCH_SUPPORTS(...)
#include "services/analyser/backends.def"
#undef QUENCH_BACKEND
#undef QUENCH_SUPPORTS
  return all;
}

absl::StatusOr<Backend> FindBackend(const std::string& name) {
  std::vector<std::string> names;
  for (Backend& backend : Backends()) {
    if (backend.name == name) return std::move(backend);
    names.push_back(backend.name);
  }
  return InvalidArgument("backend `{}` is neither one of {} nor a file of operators",
                         name.substr(0, 80), fmt::join(names, ", "));
}

absl::StatusOr<Backend> BackendOf(const std::string& name, const std::string& text) {
  std::vector<std::string> known;
  for (const ops::OpDef* op : ops::AllOps()) known.push_back(op->name);
  std::set<std::string, std::less<>> listed;
  StatusCollector problems;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    line = line.substr(0, line.find('#'));
    line.erase(0, line.find_first_not_of(" \t\r"));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (line.empty()) continue;
    if (ops::FindOp(line) == nullptr) {
      problems.Add(InvalidArgument("{}:{}: operator `{}` is not known, similar ones are `{}`", name,
                                   number, line.substr(0, 80),
                                   fmt::join(NearNames(line.substr(0, 80), known, 3), "`, `")));
    }
    listed.insert(line);
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  if (listed.empty()) return InvalidArgument("`{}` lists no operator", name);
  return Backend{name, "operators of a list",
                 [listed = std::move(listed)](const Graph&, const Node& node) -> std::string {
                   return listed.count(node.op) > 0 ? "" : "it is not in the list";
                 }};
}

}  // namespace quench::analyser
