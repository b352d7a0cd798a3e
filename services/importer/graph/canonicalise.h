// Stage `imported` -> stage `canonical`: a model's own nodes become nodes of the catalogue, each by the
// conversion of its operator; outer values of bodies become explicit inputs, all types are inferred,
// and arithmetic on small integer constants is evaluated.
#pragma once

#include <absl/status/statusor.h>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/importer/graph/converter.h"
#include "services/importer/graph/weights.h"

namespace quench::importer {

// `find` has a conversion for each node. Also writes the inferred types back to the values of
// `imported` whose type was unknown. `weights` has the bytes of tensor attributes. All
// failing nodes are reported at once.
absl::StatusOr<Graph> Canonicalise(Graph& imported, const FindConversion& find,
                                   const WeightWriter& weights, const StepContext& context);

}  // namespace quench::importer
