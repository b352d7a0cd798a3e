// ModelProto -> Graph at stage `imported`: the model's own nodes with domain and version, local
// functions inlined, weights in the blob store. Bodies of If, Loop and Scan refer to outer values
// by name: such a value has no producer and is neither input nor constant of the body.
#pragma once

#include <absl/status/statusor.h>

#include "common/ir/graph.h"
#include "services/importer/importer.h"
#include "services/importer/onnx/model_file.h"
#include "services/importer/onnx/tensor_data.h"

namespace quench::importer {

// All problems of the model are reported at once. `weights` is finished on return.
absl::StatusOr<Graph> ReadGraph(const ModelFile& file, const Opsets& opsets,
                                const ImportOptions& options, const TensorSources& sources,
                                WeightWriter& weights, const StepContext& context);

// Nodes of the main graph that the outputs (or the cut in `options`) need, in the model's order.
absl::StatusOr<std::vector<const onnx::v1::NodeProto*>> NeededNodes(
    const onnx::v1::GraphProto& graph, const ImportOptions& options);

}  // namespace quench::importer
