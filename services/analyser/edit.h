// Modules changed by scripts.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/analyser/edit_script.h"

namespace quench::analyser {

// Gives the tensor of a file that a script names (FilesOf).
using EditTensors =
    std::function<absl::StatusOr<Tensor>(const std::string& file, const std::string& array)>;

struct EditReport {
  std::vector<std::string> changes;  // a sentence for each statement
  std::vector<std::string> dropped;  // nodes that are no longer needed, inputs without a reader
};

struct Edited {
  Graph graph;
  EditReport report;
};

// Applies the statements in order, infers all types anew from the inputs' types, and verifies the
// result. Inputs that lose their last reader to `input` or `outputs` are dropped, together with the
// outputs that carry their states. `graph` is canonical or quantized. Errors name each statement
// that cannot be applied by line and column, or each node whose operator does not support its
// operands.
absl::StatusOr<Edited> EditGraph(const Graph& graph, const EditScript& script,
                                 const EditTensors& tensors, const StepContext& context = {});

std::string ToTable(const EditReport& report);
std::string ToJson(const EditReport& report);

}  // namespace quench::analyser
