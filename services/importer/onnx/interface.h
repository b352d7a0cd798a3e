// The model's inputs: which they are, and their types after the caller's overrides.
#pragma once

#include <absl/status/statusor.h>

#include <set>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "quench/onnx/v1/onnx.pb.h"
#include "services/importer/importer.h"

namespace quench::importer {

struct GraphInput {
  std::string name;
  Type type;
};

// Inputs that the caller must give: those declared without initializer and not frozen; with a cut,
// those that `used` holds. Named and unknown dims become symbols in `symbols`, in the ranges of
// `options.dims`.
absl::StatusOr<std::vector<GraphInput>> ReadInputs(const onnx::v1::GraphProto& graph,
                                                   const ImportOptions& options,
                                                   const std::set<std::string>& used,
                                                   SymbolTable& symbols);

// A declared type whose dims are integers; any other dim leaves the tensor unranked.
absl::StatusOr<Type> StaticTypeOf(const onnx::v1::TypeProto& proto);

}  // namespace quench::importer
