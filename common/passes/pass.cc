#include "common/passes/pass.h"

#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "common/ops/op.h"

namespace quench::passes {
namespace {

absl::Status VerifyAll(const Graph& graph) {
  QUENCH_RETURN_IF_ERROR(VerifyGraph(graph));
  StatusCollector problems;
  ForEachGraph(graph, [&](const Graph& part) {
    for (const Node& node : part.nodes) problems.Add(ops::CheckNode(part, node));
  });
  return problems.Finish();
}

}  // namespace

absl::StatusOr<Graph> RunPass(const PassInfo& pass, Graph graph, const PassOptions& options,
                              const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(context.Check());
  if (options.disabled.contains(std::string(pass.disabled_by))) return graph;
  const std::string where = fmt::format("pass `{}`", pass.name);
  absl::StatusOr<Graph> result = pass.run(std::move(graph), options, context);
  if (!result.ok()) return Annotate(result.status(), where);
  if (options.verify) {
    // A pass that breaks the graph is our defect; the model is not to blame.
    const absl::Status legal = VerifyAll(*result);
    if (!legal.ok()) return Internal("{} gave an illegal graph: {}", where, MessageOf(legal));
  }
  if (options.on_pass) options.on_pass(pass.name, *result);
  return result;
}

}  // namespace quench::passes
