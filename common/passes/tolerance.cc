#include "common/passes/tolerance.h"

#include <cmath>

namespace quench::passes {
namespace {

// Distance from 1 to the next number.
double Epsilon(DataType type) {
  switch (type) {
    case DataType::kF16:
      return std::ldexp(1, -10);
    case DataType::kBF16:
      return std::ldexp(1, -7);
    case DataType::kF8E4M3FN:
    case DataType::kF8E4M3FNUZ:
      return std::ldexp(1, -3);
    case DataType::kF8E5M2:
    case DataType::kF8E5M2FNUZ:
      return std::ldexp(1, -2);
    case DataType::kF4E2M1:
      return std::ldexp(1, -1);
    default:
      return std::ldexp(1, -23);
  }
}

DataType Coarser(DataType a, DataType b) {
  if (!IsFloat(b)) return a;
  return a == DataType::kUndefined || DefaultTolerance(b) > DefaultTolerance(a) ? b : a;
}

// The coarsest float among the values of a body, however deep.
DataType CoarsestIn(const Node& node) {
  DataType coarsest = DataType::kUndefined;
  for (const auto& [name, attribute] : node.attributes) {
    const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
    if (body == nullptr || *body == nullptr) continue;
    ForEachGraph(**body, [&](const Graph& graph) {
      for (const Value& value : graph.values) {
        if (value.producer != kNone) coarsest = Coarser(coarsest, value.type.dtype);
      }
    });
  }
  return coarsest;
}

}  // namespace

double DefaultTolerance(DataType type) {
  if (type == DataType::kF64 || type == DataType::kF32 || IsComplex(type)) return 1e-4;
  return IsFloat(type) ? (type == DataType::kF16 ? 16 : 4) * Epsilon(type) : 0;
}

std::map<std::string, ValueError> Tolerances(const Graph& graph, std::optional<double> given) {
  std::vector<DataType> coarsest(graph.values.size(), DataType::kUndefined);
  for (const Node& node : graph.nodes) {
    DataType type = CoarsestIn(node);
    for (const ValueId id : node.inputs) {
      if (id != kNone) type = Coarser(type, coarsest[static_cast<size_t>(id)]);
    }
    for (const ValueId id : node.outputs) {
      if (id != kNone)
        coarsest[static_cast<size_t>(id)] = Coarser(type, graph.value(id).type.dtype);
    }
  }
  std::map<std::string, ValueError> result;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    const bool floats = IsFloat(value.type.dtype);
    const DataType type =
        floats && coarsest[i] != DataType::kUndefined ? coarsest[i] : value.type.dtype;
    const bool inexact = floats || IsComplex(value.type.dtype);
    result[value.name] = {value.name, 0, inexact ? given.value_or(DefaultTolerance(type)) : 0,
                          type};
  }
  return result;
}

}  // namespace quench::passes
