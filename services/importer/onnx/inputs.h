// The inputs that an ONNX model declares, and types as ONNX writes them.
#pragma once

#include <absl/status/statusor.h>

#include <set>
#include <string>
#include <vector>

#include "quench/onnx/v1/onnx.pb.h"
#include "services/importer/graph/interface.h"

namespace quench::importer {

// Inputs that the caller must give: those declared without initializer and not frozen; with a cut,
// those that `used` holds. As ResolveInputs.
absl::StatusOr<std::vector<GraphInput>> ReadInputs(const onnx::v1::GraphProto& graph,
                                                   const ImportOptions& options,
                                                   const std::set<std::string>& used,
                                                   SymbolTable& symbols);

// A declared type whose dims are integers; any other dim leaves the tensor unranked.
absl::StatusOr<Type> StaticTypeOf(const onnx::v1::TypeProto& proto);

}  // namespace quench::importer
