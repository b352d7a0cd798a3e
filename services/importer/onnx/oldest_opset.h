// The oldest version of ONNX that a canonical graph needs.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/ir/graph.h"

namespace quench::importer {

// Versions that a model's file declares.
struct OnnxVersion {
  int64_t opset = 0;
  int64_t ir_version = 0;
};

// The oldest opset, 21 or newer, at which every operator of ONNX's in a canonical graph means what
// it means at the newest, and the IR version that came with it: runtimes refuse files that are newer
// than they are. A node whose types are not known needs the newest.
OnnxVersion OldestOpset(const Graph& graph);
// Whether an attribute came only after `opset`: there it says what is meant without it.
bool IsNewerAttribute(const Node& node, std::string_view attribute, int64_t opset);

}  // namespace quench::importer
