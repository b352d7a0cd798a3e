#include "services/importer/onnx/interface.h"

#include <algorithm>

#include "common/base/status.h"
#include "services/importer/onnx/names.h"
#include "services/importer/onnx/tensor_data.h"

namespace quench::importer {
namespace {

using onnx::v1::TensorShapeProto;
using onnx::v1::TypeProto;
using onnx::v1::ValueInfoProto;

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

bool IsNamed(const TensorShapeProto::Dimension& dim) {
  return dim.has_dim_param() && !dim.dim_param().empty() && dim.dim_param() != "?" &&
         dim.dim_param() != "-1";
}
bool IsFixed(const TensorShapeProto::Dimension& dim) {
  return dim.has_dim_value() && dim.dim_value() >= 0;
}

// Turns the dims of all inputs into integers and symbols.
class DimReader {
 public:
  DimReader(const ImportOptions& options, SymbolTable& symbols)
      : options_(options), symbols_(symbols) {}

  // A fixed size that an override gives to a named dim holds wherever that name occurs.
  absl::Status Bind(const std::string& input, const TensorShapeProto& declared,
                    const std::vector<int64_t>& given);
  std::vector<Dim> Dims(const std::string& input, int index, const TensorShapeProto& declared);
  std::vector<Dim> GivenDims(const std::string& input, int index,
                             const std::vector<int64_t>& given);
  absl::Status CheckDimOptions() const;

 private:
  Dim Symbol(const std::string& wanted, bool shared, int input, int axis);

  const ImportOptions& options_;
  SymbolTable& symbols_;
  NameSet names_;
  std::map<std::string, Dim> by_param_;   // dim_param -> symbol
  std::map<std::string, int64_t> bound_;  // dim_param -> size
  std::map<std::string, int> created_;    // symbol names, for error texts
};

absl::Status DimReader::Bind(const std::string& input, const TensorShapeProto& declared,
                             const std::vector<int64_t>& given) {
  if (static_cast<int>(given.size()) != declared.dim_size()) {
    return InvalidArgument("input `{}` has rank {}, the shape [{}] given for it has rank {}", input,
                           declared.dim_size(), fmt::join(given, ", "), given.size());
  }
  for (int axis = 0; axis < declared.dim_size(); ++axis) {
    const int64_t size = given[static_cast<size_t>(axis)];
    if (size < 0 || !IsNamed(declared.dim(axis))) continue;
    const std::string& param = declared.dim(axis).dim_param();
    const auto [known, fresh] = bound_.emplace(param, size);
    if (!fresh && known->second != size) {
      return InvalidArgument("the given shapes make dim `{}` both {} and {}", Printable(param),
                             known->second, size);
    }
  }
  return absl::OkStatus();
}

Dim DimReader::Symbol(const std::string& wanted, bool shared, int input, int axis) {
  if (shared) {
    if (const auto bound = bound_.find(wanted); bound != bound_.end()) return bound->second;
    if (const auto known = by_param_.find(wanted); known != by_param_.end()) return known->second;
  }
  const std::string name = names_.Take(SymbolName(wanted));
  Bounds bounds{1, kUnbounded};
  if (const auto range = options_.dims.find(name); range != options_.dims.end()) {
    bounds = {range->second.first, range->second.second};
  }
  created_.emplace(name, input);
  const Dim dim = bounds.min == bounds.max
                      ? Dim(bounds.min)
                      : Dim::OfSymbol(symbols_.AddInput(name, {input, axis}, bounds));
  if (shared) by_param_.emplace(wanted, dim);
  return dim;
}

std::vector<Dim> DimReader::Dims(const std::string& input, int index,
                                 const TensorShapeProto& declared) {
  const auto given = options_.shapes.find(input);
  std::vector<Dim> dims;
  for (int axis = 0; axis < declared.dim_size(); ++axis) {
    const TensorShapeProto::Dimension& dim = declared.dim(axis);
    const int64_t override_size =
        given == options_.shapes.end() ? -1 : given->second[static_cast<size_t>(axis)];
    if (override_size >= 0) {
      dims.emplace_back(override_size);
    } else if (IsFixed(dim)) {
      dims.emplace_back(dim.dim_value());
    } else if (IsNamed(dim)) {
      dims.push_back(Symbol(dim.dim_param(), true, index, axis));
    } else {
      dims.push_back(Symbol(fmt::format("{}_d{}", input, axis), false, index, axis));
    }
  }
  return dims;
}

std::vector<Dim> DimReader::GivenDims(const std::string& input, int index,
                                      const std::vector<int64_t>& given) {
  std::vector<Dim> dims;
  for (size_t axis = 0; axis < given.size(); ++axis) {
    const int at = static_cast<int>(axis);
    dims.push_back(given[axis] >= 0 ? Dim(given[axis])
                                    : Symbol(fmt::format("{}_d{}", input, at), false, index, at));
  }
  return dims;
}

absl::Status DimReader::CheckDimOptions() const {
  StatusCollector problems;
  for (const auto& [name, range] : options_.dims) {
    if (range.first < 0 || range.first > range.second) {
      problems.Add(InvalidArgument("dim `{}` is given the range {}..{}, which is empty", name,
                                   range.first, range.second));
    } else if (!created_.contains(name)) {
      problems.Add(
          InvalidArgument("the model has no symbolic dim `{}`, it has {}", name, KeysOf(created_)));
    }
  }
  return problems.Finish();
}

absl::StatusOr<Type> TensorTypeOf(const ValueInfoProto& info, const ImportOptions& options,
                                  int index, DimReader& dims) {
  const std::string& name = info.name();
  const TypeProto::Tensor& declared = info.type().tensor_type();
  const auto dtype_option = options.dtypes.find(name);
  Type type;
  type.ranked = true;
  if (dtype_option != options.dtypes.end()) {
    type.dtype = dtype_option->second;
  } else {
    QUENCH_ASSIGN_OR_RETURN(type.dtype, DataTypeOf(declared.elem_type()));
  }
  if (type.dtype == DataType::kUndefined) return InvalidArgument("has no data type; give one");
  if (declared.has_shape()) {
    if (declared.shape().dim_size() > kMaxRank)
      return InvalidArgument("has rank {}, at most {} is read", declared.shape().dim_size(),
                             kMaxRank);
    type.dims = dims.Dims(name, index, declared.shape());
  } else if (const auto given = options.shapes.find(name); given != options.shapes.end()) {
    type.dims = dims.GivenDims(name, index, given->second);
  } else {
    return InvalidArgument("has no shape; give one");
  }
  return type;
}

}  // namespace

absl::StatusOr<Type> StaticTypeOf(const TypeProto& proto) {
  Type type;
  switch (proto.value_case()) {
    case TypeProto::kTensorType: {
      QUENCH_ASSIGN_OR_RETURN(type.dtype, DataTypeOf(proto.tensor_type().elem_type()));
      const TensorShapeProto& shape = proto.tensor_type().shape();
      type.ranked = proto.tensor_type().has_shape() && shape.dim_size() <= kMaxRank &&
                    std::all_of(shape.dim().begin(), shape.dim().end(), IsFixed);
      if (type.ranked) {
        for (const auto& dim : shape.dim()) type.dims.emplace_back(dim.dim_value());
      }
      return type;
    }
    case TypeProto::kSequenceType: {
      type.kind = ValueKind::kSequence;
      QUENCH_ASSIGN_OR_RETURN(Type element, StaticTypeOf(proto.sequence_type().elem_type()));
      type.element = {std::move(element)};
      return type;
    }
    case TypeProto::kOptionalType: {
      type.kind = ValueKind::kOptional;
      QUENCH_ASSIGN_OR_RETURN(Type element, StaticTypeOf(proto.optional_type().elem_type()));
      type.element = {std::move(element)};
      return type;
    }
    case TypeProto::kMapType: {
      type.kind = ValueKind::kMap;
      QUENCH_ASSIGN_OR_RETURN(type.dtype, DataTypeOf(proto.map_type().key_type()));
      QUENCH_ASSIGN_OR_RETURN(Type element, StaticTypeOf(proto.map_type().value_type()));
      type.element = {std::move(element)};
      return type;
    }
    case TypeProto::kSparseTensorType:
      return Unsupported("is a sparse tensor");
    case TypeProto::kOpaqueType:
      return Unsupported("is of an opaque type");
    case TypeProto::VALUE_NOT_SET:
      return type;
  }
  return type;
}

absl::StatusOr<std::vector<GraphInput>> ReadInputs(const onnx::v1::GraphProto& graph,
                                                   const ImportOptions& options,
                                                   const std::set<std::string>& used,
                                                   SymbolTable& symbols) {
  std::set<std::string> initialised;
  for (const auto& tensor : graph.initializer()) initialised.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) initialised.insert(tensor.values().name());
  std::vector<const ValueInfoProto*> declared;
  std::map<std::string, const ValueInfoProto*> by_name;
  for (const ValueInfoProto& input : graph.input()) {
    by_name.emplace(Printable(input.name()), &input);
    if (initialised.contains(input.name()) || options.freeze_params.contains(input.name()))
      continue;
    if (options.outputs.empty() || used.contains(input.name())) declared.push_back(&input);
  }

  StatusCollector problems;
  DimReader dims(options, symbols);
  const auto check_known = [&](const auto& overrides, const char* what) {
    for (const auto& [name, value] : overrides) {
      if (by_name.contains(name)) continue;
      problems.Add(InvalidArgument("{} is given for `{}`, the model's inputs are {}", what, name,
                                   KeysOf(by_name)));
    }
  };
  check_known(options.shapes, "a shape");
  check_known(options.dtypes, "a data type");
  check_known(options.freeze_params, "a value");
  for (const ValueInfoProto* input : declared) {
    const auto given = options.shapes.find(input->name());
    if (given == options.shapes.end() || !input->type().tensor_type().has_shape()) continue;
    problems.Add(dims.Bind(input->name(), input->type().tensor_type().shape(), given->second));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());

  std::vector<GraphInput> inputs;
  for (const ValueInfoProto* input : declared) {
    const bool tensor =
        input->type().has_tensor_type() || input->type().value_case() == TypeProto::VALUE_NOT_SET;
    absl::StatusOr<Type> type =
        tensor ? TensorTypeOf(*input, options, static_cast<int>(inputs.size()), dims)
               : StaticTypeOf(input->type());
    if (!type.ok())
      problems.Add(Annotate(type.status(), fmt::format("input `{}`", Printable(input->name()))));
    inputs.push_back({input->name(), type.ok() ? *std::move(type) : Type{}});
  }
  problems.Add(dims.CheckDimOptions());
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return inputs;
}

}  // namespace quench::importer
