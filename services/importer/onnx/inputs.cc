#include "services/importer/onnx/inputs.h"

#include <algorithm>

#include "common/base/status.h"
#include "services/importer/graph/names.h"
#include "services/importer/onnx/tensor_data.h"

namespace quench::importer {
namespace {

using onnx::v1::TensorShapeProto;
using onnx::v1::TypeProto;
using onnx::v1::ValueInfoProto;

bool IsFixed(const TensorShapeProto::Dimension& dim) {
  return dim.has_dim_value() && dim.dim_value() >= 0;
}

DeclaredDim DimOf(const TensorShapeProto::Dimension& dim) {
  if (IsFixed(dim)) return {dim.dim_value(), ""};
  const bool named = dim.has_dim_param() && dim.dim_param() != "?" && dim.dim_param() != "-1";
  return {-1, named ? dim.dim_param() : ""};
}

DeclaredInput DeclaredInputOf(const ValueInfoProto& info) {
  const TypeProto& type = info.type();
  DeclaredInput input;
  input.name = info.name();
  input.is_tensor = type.has_tensor_type() || type.value_case() == TypeProto::VALUE_NOT_SET;
  if (!input.is_tensor) {
    input.type = StaticTypeOf(type);
    return input;
  }
  const absl::StatusOr<DataType> dtype = DataTypeOf(type.tensor_type().elem_type());
  input.type = dtype.ok() ? absl::StatusOr<Type>(Type::Tensor(*dtype, {})) : dtype.status();
  if (!type.tensor_type().has_shape()) return input;
  input.dims.emplace();
  for (const TensorShapeProto::Dimension& dim : type.tensor_type().shape().dim())
    input.dims->push_back(DimOf(dim));
  return input;
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
  std::vector<DeclaredInput> declared;
  std::set<std::string> names;
  for (const ValueInfoProto& input : graph.input()) {
    names.insert(Printable(input.name()));
    if (initialised.contains(input.name()) || options.freeze_params.contains(input.name()))
      continue;
    if (options.outputs.empty() || used.contains(input.name()))
      declared.push_back(DeclaredInputOf(input));
  }
  return ResolveInputs(std::move(declared), names, false, options, symbols);
}

}  // namespace quench::importer
