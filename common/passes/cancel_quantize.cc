// Drops quantizing what was dequantized with the same scale and zero point.
//   pre: types inferred
//   QuantizeLinear(DQ(x))   ==>   x
//   case: cancel_quantize.ir.txt
#include <optional>

#include "common/base/status.h"
#include "common/passes/dequantized.h"
#include "common/passes/passes.h"

namespace quench::passes {

absl::StatusOr<Graph> CancelQuantize(Graph graph, const PassOptions& options,
                                     const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return CancelQuantize(std::move(body), options, context); }));
  for (const Node& node : graph.nodes) {
    if (node.op != "QuantizeLinear") continue;
    const std::optional<Dequantized> before = ReadKnown(graph, node.inputs[0]);
    const std::optional<Dequantized> after =
        OneScale(graph, node, graph.value(node.outputs[0]).type.dtype);
    if (before && after && before->SameAs(*after))
      Replace(graph, node.outputs[0], before->integers);
  }
  return Settled(std::move(graph));
}

}  // namespace quench::passes
