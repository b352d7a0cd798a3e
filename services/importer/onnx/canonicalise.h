// Stage `imported` -> stage `canonical`: operators at the newest opset, constants instead of
// Constant nodes, outer values of bodies as explicit inputs, every type inferred.
#pragma once

#include <absl/status/statusor.h>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/importer/onnx/weights.h"

namespace quench::importer {

// Also writes the inferred types back to the values of `imported` whose type was unknown. `weights`
// knows where the bytes of tensor attributes lie. All failing nodes are reported at once.
absl::StatusOr<Graph> Canonicalise(Graph& imported, const WeightWriter& weights,
                                   const StepContext& context);

}  // namespace quench::importer
