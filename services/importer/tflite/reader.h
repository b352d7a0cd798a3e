// A TensorFlow Lite model -> Graph at stage `imported`: its own operators (domain "tflite"), with
// their options, and the scales of their quantized tensors, as attributes.
#pragma once

#include <absl/status/statusor.h>

#include "common/ir/graph.h"
#include "services/importer/importer.h"
#include "services/importer/tflite/model_file.h"

namespace quench::importer {

// IF and WHILE become If and Loop (domain ""), calls of subgraphs are inlined. The contents of a
// resource variable or variable tensor are an input and an output of the graph: metadata
// `state.<input>` names the output that is the next run's input. All problems are reported at once.
// `weights` is finished on return.
absl::StatusOr<Graph> ReadTfliteGraph(const TfliteFile& file, const ImportOptions& options,
                                      WeightWriter& weights, const StepContext& context);

}  // namespace quench::importer
