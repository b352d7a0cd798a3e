// Removes what no output needs.
//   pre: none    x -> Relu -> (unused), x -> Exp -> out   ==>   x -> Exp -> out
//   case: DeadCodeTest
#include "common/base/status.h"
#include "common/passes/passes.h"

namespace quench::passes {

absl::StatusOr<Graph> RemoveDeadCode(Graph graph, const PassOptions& options,
                                     const StepContext& context) {
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return RemoveDeadCode(std::move(body), options, context); }));
  return graph;
}

}  // namespace quench::passes
