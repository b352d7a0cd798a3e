#include "services/importer/graph/interface.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "services/importer/graph/names.h"
#include "services/importer/graph/weights.h"

namespace quench::importer {
namespace {

template <typename Map>
std::string KeysOf(const Map& map) {
  std::string list;
  for (const auto& entry : map)
    list += fmt::format("{}`{}`", list.empty() ? "" : ", ", entry.first);
  return list.empty() ? "none" : list;
}

// Symbol names are identifiers, so that dim expressions print and parse.
std::string SymbolName(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    name.push_back(plain ? c : '_');
  }
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) name.insert(0, "d");
  static const std::set<std::string> kFunctions = {"floordiv", "ceildiv", "mod", "min", "max"};
  if (kFunctions.contains(name)) name += "_";
  return name;
}

using DeclaredDims = std::vector<DeclaredDim>;

constexpr int kTransposeVersion = 13;  // of imported nodes

bool HasChannels(int rank) { return rank == 4 || rank == 5; }

// The order of a Transpose that moves channels to the last axis, or from there to axis 1.
std::vector<int64_t> ChannelOrder(int rank, bool last) {
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (last) {
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  } else {
    std::rotate(order.begin() + 1, order.end() - 1, order.end());
  }
  return order;
}

// scale * name + offset, with scale > 0.
struct LinearForm {
  std::string name;
  int64_t scale = 1, offset = 0;
};

std::optional<LinearForm> LinearFormOf(const DimFormula& formula) {
  if (formula.dim.is_static()) return std::nullopt;
  const Symbol& symbol = formula.symbols->at(formula.dim.symbol());
  const auto* polynomial = std::get_if<Polynomial>(&symbol.definition);
  if (polynomial == nullptr || polynomial->terms.size() != 1) return std::nullopt;
  const Monomial& term = polynomial->terms[0];
  if (term.factors.size() != 1 || term.coefficient < 1) return std::nullopt;
  const Symbol& factor = formula.symbols->at(term.factors[0]);
  if (!factor.is_input()) return std::nullopt;
  return LinearForm{factor.name, term.coefficient, polynomial->constant};
}

// The symbols that the formula is made of, which are not expressions.
std::vector<SymbolId> AtomsOf(const DimFormula& formula) {
  std::set<SymbolId> seen;
  std::vector<SymbolId> atoms, pending = {formula.dim.symbol()};
  while (!pending.empty()) {
    const SymbolId id = pending.back();
    pending.pop_back();
    if (!seen.insert(id).second) continue;
    if (!formula.symbols->at(id).is_expression()) atoms.push_back(id);
    formula.symbols->ForEachOperand(id, [&](Dim operand) {
      if (!operand.is_static()) pending.push_back(operand.symbol());
    });
  }
  return atoms;
}

// Turns the dims of all inputs into integers and symbols.
class DimReader {
 public:
  DimReader(const ImportOptions& options, SymbolTable& symbols)
      : options_(options), symbols_(symbols) {}

  // A fixed size that an override gives to a named dim holds wherever that name occurs.
  absl::Status Bind(const std::string& input, const DeclaredDims& declared,
                    const std::vector<int64_t>& given);
  std::vector<Dim> Dims(const std::string& input, int index, const DeclaredDims& declared);
  std::vector<Dim> GivenDims(const std::string& input, int index,
                             const std::vector<int64_t>& given);
  // The dims that formulas give, once all others are known.
  absl::Status ResolveFormulas(std::vector<GraphInput>& inputs);
  absl::Status CheckDimOptions() const;

 private:
  enum class Step : uint8_t { kKnown, kLinear, kRest };
  struct Pending {
    std::string input;
    int index = 0, axis = 0;
    const DeclaredDim* dim = nullptr;
  };
  absl::Status BindFormula(const std::string& input, size_t axis, const DeclaredDim& dim,
                           int64_t size);
  Dim NewSymbol(const std::string& wanted, int input, int axis, Bounds bounds,
                int64_t multiple_of = 1);
  std::optional<Dim> Known(const std::string& name) const;
  std::optional<Dim> DimOf(const DimFormula& formula);
  Dim OwnDim(const Pending& pending);

  const ImportOptions& options_;
  SymbolTable& symbols_;
  NameSet names_;
  std::map<std::string, Dim> by_param_;   // dim_param -> symbol
  std::map<std::string, int64_t> bound_;  // dim_param -> size
  std::map<std::string, int> created_;    // symbol names, for error texts
  std::vector<Pending> pending_;
};

absl::Status DimReader::Bind(const std::string& input, const DeclaredDims& declared,
                             const std::vector<int64_t>& given) {
  if (given.size() != declared.size()) {
    return InvalidArgument("input `{}` has rank {}, the shape [{}] given for it has rank {}", input,
                           declared.size(), fmt::join(given, ", "), given.size());
  }
  for (size_t axis = 0; axis < declared.size(); ++axis) {
    const int64_t size = given[axis];
    const std::string& param = declared[axis].name;
    if (size < 0 || param.empty()) continue;
    if (declared[axis].formula)
      QUENCH_RETURN_IF_ERROR(BindFormula(input, axis, declared[axis], size));
    const auto [known, fresh] = bound_.emplace(param, size);
    if (!fresh && known->second != size) {
      return InvalidArgument("the given shapes make dim `{}` both {} and {}", Printable(param),
                             known->second, size);
    }
  }
  return absl::OkStatus();
}

// Finds the size of a name from the size that is given for an expression of it.
absl::Status DimReader::BindFormula(const std::string& input, size_t axis, const DeclaredDim& dim,
                                    int64_t size) {
  const std::optional<LinearForm> form = LinearFormOf(*dim.formula);
  if (!form) return absl::OkStatus();
  int64_t rest = 0;
  const bool fits = !__builtin_sub_overflow(size, form->offset, &rest);
  if (!fits || rest < 0 || rest % form->scale != 0)
    return InvalidArgument("input `{}` is given the size {} at axis {}, which `{}` cannot be",
                           input, size, axis, Printable(dim.name));
  const auto [known, fresh] = bound_.emplace(form->name, rest / form->scale);
  if (fresh || known->second == rest / form->scale) return absl::OkStatus();
  return InvalidArgument("the given shapes make dim `{}` both {} and {}", Printable(form->name),
                         known->second, rest / form->scale);
}

std::optional<Dim> DimReader::Known(const std::string& name) const {
  if (const auto bound = bound_.find(name); bound != bound_.end()) return bound->second;
  const auto known = by_param_.find(name);
  return known == by_param_.end() ? std::nullopt : std::optional(known->second);
}

Dim DimReader::NewSymbol(const std::string& wanted, int input, int axis, Bounds bounds,
                         int64_t multiple_of) {
  const std::string name = names_.Take(SymbolName(wanted));
  if (const auto range = options_.dims.find(name); range != options_.dims.end()) {
    bounds = {range->second.first, range->second.second};
  }
  created_.emplace(name, input);
  return bounds.min == bounds.max
             ? Dim(bounds.min)
             : Dim::OfSymbol(symbols_.AddInput(name, {input, axis}, bounds, multiple_of));
}

std::vector<Dim> DimReader::Dims(const std::string& input, int index,
                                 const DeclaredDims& declared) {
  const auto given = options_.shapes.find(input);
  std::vector<Dim> dims;
  for (size_t axis = 0; axis < declared.size(); ++axis) {
    const int at = static_cast<int>(axis);
    const DeclaredDim& dim = declared[axis];
    const int64_t override_size = given == options_.shapes.end() ? -1 : given->second[axis];
    if (override_size >= 0) {
      dims.emplace_back(override_size);
    } else if (dim.size >= 0) {
      dims.emplace_back(dim.size);
    } else if (const std::optional<Dim> known = Known(dim.name); known && !dim.name.empty()) {
      dims.push_back(*known);
    } else if (dim.formula) {
      pending_.push_back({input, index, at, &dim});
      dims.emplace_back(0);
    } else if (!dim.name.empty()) {
      dims.push_back(NewSymbol(dim.name, index, at, dim.bounds));
      by_param_.emplace(dim.name, dims.back());
    } else {
      dims.push_back(NewSymbol(fmt::format("{}_d{}", input, at), index, at, dim.bounds));
    }
  }
  return dims;
}

std::vector<Dim> DimReader::GivenDims(const std::string& input, int index,
                                      const std::vector<int64_t>& given) {
  std::vector<Dim> dims;
  for (size_t axis = 0; axis < given.size(); ++axis) {
    const int at = static_cast<int>(axis);
    dims.push_back(given[axis] >= 0
                       ? Dim(given[axis])
                       : NewSymbol(fmt::format("{}_d{}", input, at), index, at, {1, kUnbounded}));
  }
  return dims;
}

std::optional<Dim> DimReader::DimOf(const DimFormula& formula) {
  std::map<SymbolId, Dim> values;
  for (const SymbolId id : AtomsOf(formula)) {
    const Symbol& atom = formula.symbols->at(id);
    const std::optional<Dim> known = atom.is_input() ? Known(atom.name) : std::nullopt;
    if (!known) return std::nullopt;
    values.emplace(id, *known);
  }
  return symbols_.Import(*formula.symbols, formula.dim, values);
}

// A symbol for the size itself; a name that it is linear in follows from it.
Dim DimReader::OwnDim(const Pending& pending) {
  const std::optional<LinearForm> form = LinearFormOf(*pending.dim->formula);
  const int64_t multiple = form && form->offset == 0 ? form->scale : 1;
  const Dim own = NewSymbol(fmt::format("{}_d{}", pending.input, pending.axis), pending.index,
                            pending.axis, pending.dim->bounds, multiple);
  if (form)
    by_param_.emplace(form->name, symbols_.FloorDiv(symbols_.Sub(own, form->offset), form->scale));
  return own;
}

absl::Status DimReader::ResolveFormulas(std::vector<GraphInput>& inputs) {
  StatusCollector problems;
  const auto resolve = [&](const Pending& pending, Dim dim) {
    by_param_.emplace(pending.dim->name, dim);
    inputs[static_cast<size_t>(pending.index)].type.dims[static_cast<size_t>(pending.axis)] = dim;
    if (dim.is_static() && dim.value() < 0)
      problems.Add(InvalidArgument("input `{}`: its size `{}` is {}", Printable(pending.input),
                                   Printable(pending.dim->name), dim.value()));
  };
  // First what follows from the sizes that are there, then what other names follow from, then the rest.
  for (const Step step : {Step::kKnown, Step::kLinear, Step::kRest}) {
    std::vector<Pending> left;
    for (const Pending& pending : std::exchange(pending_, {})) {
      const std::optional<Dim> same = Known(pending.dim->name);
      const std::optional<Dim> known = same ? same : DimOf(*pending.dim->formula);
      if (known) {
        resolve(pending, *known);
      } else if (step == Step::kKnown ||
                 (step == Step::kLinear && !LinearFormOf(*pending.dim->formula))) {
        left.push_back(pending);
      } else {
        if (step == Step::kRest)
          inputs[static_cast<size_t>(pending.index)].untied.push_back(pending.dim->name);
        resolve(pending, OwnDim(pending));
      }
    }
    pending_ = std::move(left);
  }
  return problems.Finish();
}

absl::Status DimReader::CheckDimOptions() const {
  StatusCollector problems;
  for (const auto& [name, range] : options_.dims) {
    if (range.first < 0 || range.first > range.second) {
      problems.Add(InvalidArgument("dim `{}` is given the range {}..{}, which is empty", name,
                                   range.first, range.second));
    } else if (!created_.contains(name)) {
      problems.Add(
          created_.empty()
              ? InvalidArgument("there is no symbolic dim `{}`: the sizes of all inputs are fixed",
                                name)
              : InvalidArgument("the model has no symbolic dim `{}`, it has {}", name,
                                KeysOf(created_)));
    }
  }
  return problems.Finish();
}

absl::StatusOr<Type> TensorTypeOf(const DeclaredInput& input, const ImportOptions& options,
                                  int index, DimReader& dims) {
  const auto dtype_option = options.dtypes.find(input.name);
  Type type;
  type.ranked = true;
  if (dtype_option != options.dtypes.end()) {
    type.dtype = dtype_option->second;
  } else {
    if (!input.type.ok()) return input.type.status();
    type.dtype = input.type->dtype;
  }
  if (type.dtype == DataType::kUndefined) return InvalidArgument("has no data type; give one");
  if (input.dims) {
    if (input.dims->size() > kMaxRank)
      return InvalidArgument("has rank {}, at most {} is read", input.dims->size(), kMaxRank);
    type.dims = dims.Dims(input.name, index, *input.dims);
  } else if (const auto given = options.shapes.find(input.name); given != options.shapes.end()) {
    type.dims = dims.GivenDims(input.name, index, given->second);
  } else {
    return InvalidArgument(
        "has no shape; give one, such as --shape {0}=1,3,224,224 (of a single number: {0}=scalar)",
        input.name);
  }
  return type;
}

}  // namespace

absl::StatusOr<std::vector<GraphInput>> ResolveInputs(std::vector<DeclaredInput> declared,
                                                      const std::set<std::string>& names,
                                                      bool channels_last,
                                                      const ImportOptions& options,
                                                      SymbolTable& symbols) {
  const bool moved = !options.layout.empty() && (options.layout == "last") != channels_last;
  for (DeclaredInput& input : declared) {
    if (!moved || !input.dims || !HasChannels(static_cast<int>(input.dims->size()))) continue;
    DeclaredDims dims;
    for (const int64_t axis : ChannelOrder(static_cast<int>(input.dims->size()), !channels_last))
      dims.push_back((*input.dims)[static_cast<size_t>(axis)]);
    input.dims = std::move(dims);
  }
  StatusCollector problems;
  DimReader dims(options, symbols);
  const auto check_known = [&](const auto& overrides, const char* what) {
    for (const auto& [name, value] : overrides) {
      if (names.contains(name)) continue;
      problems.Add(
          InvalidArgument("{} is given for `{}`, the model's inputs are {}", what, name,
                          names.empty() ? "none" : fmt::format("`{}`", fmt::join(names, "`, `"))));
    }
  };
  check_known(options.shapes, "a shape");
  check_known(options.dtypes, "a data type");
  check_known(options.freeze_params, "a value");
  for (const DeclaredInput& input : declared) {
    const auto given = options.shapes.find(input.name);
    if (given == options.shapes.end() || !input.dims) continue;
    problems.Add(dims.Bind(input.name, *input.dims, given->second));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());

  std::vector<GraphInput> inputs;
  for (const DeclaredInput& input : declared) {
    absl::StatusOr<Type> type =
        input.is_tensor ? TensorTypeOf(input, options, static_cast<int>(inputs.size()), dims)
                        : input.type;
    if (!type.ok())
      problems.Add(Annotate(type.status(), fmt::format("input `{}`", Printable(input.name))));
    inputs.push_back({input.name, type.ok() ? *std::move(type) : Type{}, {}});
    const int rank = inputs.back().type.rank();
    if (moved && input.is_tensor && HasChannels(rank))
      inputs.back().order = ChannelOrder(rank, channels_last);
  }
  if (problems.ok()) problems.Add(dims.ResolveFormulas(inputs));
  problems.Add(dims.CheckDimOptions());
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return inputs;
}

ValueId PushInput(Graph& graph, NameSet& value_names, NameSet& node_names,
                  const GraphInput& input) {
  const std::string name = Printable(input.name);
  const ValueId id = PushValue(graph, value_names.Take(name), input.type);
  graph.inputs.push_back(id);
  if (input.order.empty()) return id;
  Node transpose;
  transpose.name = node_names.Take(name + "/layout");
  transpose.op = "Transpose";
  transpose.version = kTransposeVersion;
  transpose.inputs = {id};
  transpose.outputs = {PushValue(graph, value_names.Take(name + "/layout"))};
  transpose.attributes["perm"] = input.order;
  const ValueId moved = transpose.outputs[0];
  PushNode(graph, std::move(transpose));
  return moved;
}

absl::Status MoveOutputs(Graph& graph, bool last) {
  for (ValueId& output : graph.outputs) {
    const Type type = graph.value(output).type;
    if (type.kind != ValueKind::kTensor || !HasChannels(type.ranked ? type.rank() : 0)) continue;
    const std::vector<int64_t> order = ChannelOrder(type.rank(), last);
    const ValueId inner = output;
    const NodeId id = graph.AddNode("Transpose", graph.value(output).name + "/layout", {inner}, 1,
                                    {{"perm", order}});
    if (graph.stage == Stage::kImported) graph.node(id).version = kTransposeVersion;
    output = graph.node(id).outputs[0];
    std::swap(graph.value(output).name, graph.value(inner).name);
    graph.value(output).type = type;
    for (size_t i = 0; i < order.size(); ++i)
      graph.value(output).type.dims[i] = type.dims[static_cast<size_t>(order[i])];
  }
  return VerifyGraph(graph);
}

}  // namespace quench::importer
