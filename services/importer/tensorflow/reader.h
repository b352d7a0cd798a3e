// A TensorFlow model -> Graph at stage `imported`: its own operators (domain "tensorflow"), with
// their attributes.
#pragma once

#include <absl/status/statusor.h>

#include "common/ir/graph.h"
#include "services/importer/graph/weights.h"
#include "services/importer/importer.h"
#include "services/importer/tensorflow/entry.h"

namespace quench::importer {

// Calls of functions are inlined; Switch, Merge and the frames of version 1 as well as the functional
// control flow of version 2 become If and Loop (domain ""), arrays that a loop writes become its
// scan outputs. Variables are constants. All problems are reported at once. `weights` is finished on
// return.
absl::StatusOr<Graph> ReadTensorflowGraph(TfProgram& program, const TfEntry& entry,
                                          const ImportOptions& options, WeightWriter& weights,
                                          const StepContext& context);

}  // namespace quench::importer
