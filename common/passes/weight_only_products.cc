// Reads weights that are quantized alone as the integers they are.
//   pre: types inferred; products of integers on both sides are made already (integer_products)
//   x, DQ(w) -> MatMul or Gemm -> y   ==>   x, w, sw -> q.weight_only_matmul -> y, when w is large
//   The bias of a Gemm is added after it.
//   case: weight_only_products.ir.txt
#include <optional>

#include "common/base/status.h"
#include "common/passes/dequantized.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

// The product, in place of the node's output; nothing when it stays as it is.
std::optional<ValueId> WithStoredWeights(Graph& graph, const Node& node) {
  std::optional<StoredMatrix> stored = ReadStoredMatrix(graph, node);
  if (!stored) return std::nullopt;
  const double alpha = node.Float("alpha", 1), beta = node.Float("beta", 1);
  const bool biased = node.inputs.size() > 2 && node.inputs[2] != kNone && beta != 0;
  if (biased && beta != 1) return std::nullopt;
  if (alpha != 1) {
    auto* scale = reinterpret_cast<float*>(stored->scale.mutable_bytes());
    for (int64_t i = 0; i < stored->scale.size(); ++i)
      scale[i] = static_cast<float>(scale[i] * alpha);
  }
  std::vector<ValueId> operands = {node.inputs[0],
                                   graph.AddConstant(node.name + ".w", stored->integers),
                                   graph.AddConstant(node.name + ".scale", stored->scale)};
  if (stored->zero) operands.push_back(graph.AddConstant(node.name + ".zero", *stored->zero));
  const Type type = graph.value(node.outputs[0]).type;
  ValueId y = AddTyped(graph, "q.weight_only_matmul", node.name, std::move(operands), type,
                       {{"block_size", stored->block_size}});
  graph.node(graph.value(y).producer).origin = node.origin;
  if (!biased) return y;
  y = AddTyped(graph, "Add", node.name + ".biased", {y, node.inputs[2]}, type);
  graph.node(graph.value(y).producer).origin = node.origin;
  return y;
}

}  // namespace

absl::StatusOr<Graph> MakeWeightOnlyProducts(Graph graph, const PassOptions& options,
                                             const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(graph, [&](Graph body) {
    return MakeWeightOnlyProducts(std::move(body), options, context);
  }));
  const size_t nodes = graph.nodes.size();
  for (size_t i = 0; i < nodes; ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    const Node node = graph.nodes[i];  // adding nodes moves them
    if (node.op != "Gemm" && node.op != "MatMul") continue;
    if (const std::optional<ValueId> y = WithStoredWeights(graph, node))
      graph.ReplaceUses(node.outputs[0], *y);
  }
  return Settled(std::move(graph));
}

}  // namespace quench::passes
