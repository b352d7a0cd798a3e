// Operators of a model that Quench cannot import.
#pragma once

#include <absl/status/status.h>

#include <vector>

#include "services/importer/graph/converter.h"
#include "services/importer/importer.h"
#include "services/importer/onnx/model_file.h"

namespace quench::importer {

// Operators that `find` does not know, sorted by domain and name. Looks into bodies and called local functions; with a cut, only at
// the nodes that it leaves.
absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupportedOps(const onnx::v1::ModelProto& model,
                                                              const Opsets& opsets,
                                                              const FindConversion& find,
                                                              const ImportOptions& options);

}  // namespace quench::importer
