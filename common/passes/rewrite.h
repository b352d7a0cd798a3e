// Helpers of passes that change a graph in place.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::passes {

// Runs `pass` on every nested body (not on `graph` itself).
absl::Status ForEachBody(Graph& graph, const std::function<absl::StatusOr<Graph>(Graph)>& pass);

// Uses of `from` become uses of `to`, unless `from` is a graph output that `to` cannot take the
// name of. False if nothing changed.
bool Replace(Graph& graph, ValueId from, ValueId to);

// `to`, a fresh value that is the same quantity, takes the place of `from`, and its name: values of
// a graph and of its rewritten form are told by their names.
void TakePlace(Graph& graph, ValueId from, ValueId to);

// Appends a node with one output of this type and returns that.
ValueId AddTyped(Graph& graph, const std::string& op, const std::string& name,
                 std::vector<ValueId> inputs, Type type,
                 std::map<std::string, Attribute> attributes = {});

// A graph to which a pass added nodes: in topological order, without dead ones, types inferred.
absl::StatusOr<Graph> Settled(Graph graph);

// Contents of a value that is a constant, or null.
const Tensor* ConstantOf(const Graph& graph, ValueId id);

}  // namespace quench::passes
