// Stage `imported` -> stage `canonical`: a model's own nodes become those of the catalogue, each by
// the conversion of its operator; outer values of bodies become explicit inputs, every type is
// inferred, arithmetic on small integer constants is done.
#pragma once

#include <absl/status/statusor.h>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/importer/graph/converter.h"
#include "services/importer/graph/weights.h"

namespace quench::importer {

// `find` has a conversion for each node. Also writes the inferred types back to the values of
// `imported` whose type was unknown. `weights` knows where the bytes of tensor attributes lie. All
// failing nodes are reported at once.
absl::StatusOr<Graph> Canonicalise(Graph& imported, const FindConversion& find,
                                   const WeightWriter& weights, const StepContext& context);

}  // namespace quench::importer
