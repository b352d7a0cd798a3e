// The first half of integer_arithmetic: what only moves elements moves integers.
#pragma once

#include <absl/status/status.h>

#include <map>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"

namespace quench::passes {

// DQ(x) -> MaxPool -> y   ==>   x -> MaxPool -> DQ -> y, and so on down. Constants are moved at once.
absl::Status SinkDequantize(Graph& graph, const StepContext& context);

// Appends a node with one output of this type and returns that.
ValueId AddTyped(Graph& graph, const std::string& op, const std::string& name,
                 std::vector<ValueId> inputs, Type type,
                 std::map<std::string, Attribute> attributes = {});

}  // namespace quench::passes
