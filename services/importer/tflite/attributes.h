// The options of an operator of a TensorFlow Lite model, as attributes of a node.
#pragma once

#include <absl/status/status.h>

#include "common/ir/graph.h"
#include "services/importer/tflite/model_file.h"

namespace quench::importer {

// Every field of the operator's options that the file sets, under its name in the schema: numbers
// and enums as integers or floats, lists of them, strings. For a custom operator: the entries of
// its FlexBuffers map. INVALID_ARGUMENT if the options of a custom operator are not such a map.
absl::Status AddOptions(const tflite::Operator& op, Node& node);

// The scale of input or output `index`: attributes `input_0.scale`, `.zero_point` and `.axis`.
void AddScale(const char* side, size_t index, const TensorScale& scale, Node& node);
// The scale that AddScale wrote; empty if there is none.
TensorScale ScaleOf(const Node& node, const char* side, size_t index);

}  // namespace quench::importer
