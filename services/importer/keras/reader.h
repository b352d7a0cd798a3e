// A Keras model -> Graph at stage `imported`: its layers (domain "keras") and functions ("keras.tf",
// "keras.ops"), each told by attributes what its configuration says.
#pragma once

#include <absl/status/statusor.h>

#include "common/ir/graph.h"
#include "services/importer/graph/weights.h"
#include "services/importer/importer.h"
#include "services/importer/keras/keras_file.h"

namespace quench::importer {

// Models within the model are taken apart, shared layers become a node for each call, wrappers nodes
// around those of what they wrap. All problems are reported at once. `weights` is finished on return;
// null: nodes alone, without weights.
absl::StatusOr<Graph> ReadKerasGraph(const KerasFile& file, const ImportOptions& options,
                                     WeightWriter* weights, const StepContext& context);

}  // namespace quench::importer
