// Makes constant weights weights of i8 around 0, which is what kernels multiply by, where i8 holds
// their distances from the zero point: always those of u8 around 128.
//   pre: constants are folded
//   x, w: u8, zx, 128 -> ConvInteger or MatMulInteger   ==>   x, w - 128: i8, zx -> the same
//   case: signed_weights.ir.txt
#include <optional>

#include "common/base/status.h"
#include "common/passes/dequantized.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

void SignWeights(Graph& graph, NodeId id) {
  const std::vector<ValueId> in = graph.node(id).inputs;
  const Tensor* weights = ConstantOf(graph, in[1]);
  const Tensor* zero = in.size() > 3 ? ConstantOf(graph, in[3]) : nullptr;
  if (weights == nullptr || zero == nullptr) return;
  std::optional<Tensor> around_zero = AsSigned(*weights, zero);
  if (!around_zero) return;
  const std::string name = graph.value(in[1]).name;
  const ValueId constant = graph.AddConstant(name, *std::move(around_zero));
  graph.node(id).inputs[1] = constant;
  graph.node(id).inputs.resize(3);
}

}  // namespace

absl::StatusOr<Graph> SignWeightsOfProducts(Graph graph, const PassOptions& options,
                                            const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return SignWeightsOfProducts(std::move(body), options, context); }));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::string& op = graph.nodes[i].op;
    if (op == "ConvInteger" || op == "MatMulInteger") SignWeights(graph, static_cast<NodeId>(i));
  }
  return Settled(std::move(graph));
}

}  // namespace quench::passes
