// The passes, declared from their table: a file without a row does not compile, a row without a
// file does not link.
#pragma once

#include <functional>

#include "common/passes/pass.h"
#include "common/passes/rewrite.h"

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

}  // namespace quench::passes
