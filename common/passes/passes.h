// The passes, declared from their table: a file without a row does not compile, a row without a
// file does not link.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/passes/pass.h"

namespace quench::passes {

#define QUENCH_PASS(name, function, doc)                                  \
  absl::StatusOr<Graph> function(Graph graph, const PassOptions& options, \
                                 const StepContext& context);
#define QUENCH_PASS_OF(group, name, function, doc) QUENCH_PASS(name, function, doc)
#define QUENCH_PASS_GROUP(name, doc)
#include "common/passes/passes.def"
#undef QUENCH_PASS_GROUP
#undef QUENCH_PASS_OF
#undef QUENCH_PASS

// Puts the bodies of groups (q.fused, q.partition) for which `inline_node` holds back into the graph:
// always legal.
absl::StatusOr<Graph> InlineGroups(Graph graph,
                                   const std::function<bool(const Node&)>& inline_node);

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
