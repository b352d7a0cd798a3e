// The passes, declared from their table: a file without a row does not compile, a row without a
// file does not link.
#pragma once

#include "common/passes/pass.h"

namespace quench::passes {

#define QUENCH_PASS(name, function, doc)                                  \
  absl::StatusOr<Graph> function(Graph graph, const PassOptions& options, \
                                 const StepContext& context);
#include "common/passes/passes.def"
#undef QUENCH_PASS

// Puts the bodies of q.fused nodes for which `inline_node` holds back into the graph. The inverse
// of fuse_groups: always legal.
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

// Contents of a value that is a constant, or null.
const Tensor* ConstantOf(const Graph& graph, ValueId id);

}  // namespace quench::passes
