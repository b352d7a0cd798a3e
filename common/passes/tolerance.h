// How far a value may be from what a graph says it is.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/ir/graph.h"

namespace quench::passes {

// The largest RelativeError that a value of floats may have, by the coarsest type that it is
// computed from: 1e-4 for f64 and f32. Narrower ones are rounded by both sides at different places,
// and get four units in the last place of their largest element: 4 * 2^-7 for bf16, and so on; f16
// sixteen, 2^-6, since some CPUs add f16 in f16. Everything else is compared bit for bit: 0.
double DefaultTolerance(DataType type);

// One value, compared.
struct ValueError {
  std::string name;
  double error = 0;  // RelativeError, the worst over all samples
  double tolerance = 0;
  DataType type = DataType::kUndefined;               // whose tolerance that is
  bool passed() const { return error <= tolerance; }  // false for NaN
};

// By value name, for the values of the outermost graph: the type whose tolerance is theirs, and an
// error of 0.
std::map<std::string, ValueError> Tolerances(const Graph& graph, std::optional<double> given);

}  // namespace quench::passes
