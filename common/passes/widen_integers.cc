// Gives constants of integers that share a byte one each, but for nodes that read them as they are.
//   const w: i4[8] -> DequantizeLinear -> y   ==>   const w: i8[8] -> DequantizeLinear -> y
//   Micro-kernels alone read what shares a byte: those of q.weight_only_matmul, from level 2 on.
//   case: tests/cases/passes/widen_integers.ir.txt
#include <algorithm>
#include <map>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

bool IsNarrow(DataType type) {
  return type == DataType::kI4 || type == DataType::kU4 || type == DataType::kI2 ||
         type == DataType::kU2;
}

// The result of a node may depend on the type of its operands: the ends of a zero point's range are
// those of the result's.
bool MakesNarrow(const Graph& graph, const Node& node) {
  return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
    return id != kNone && IsNarrow(graph.value(id).type.dtype);
  });
}

}  // namespace

absl::StatusOr<Graph> WidenIntegers(Graph graph, const PassOptions& options,
                                    const StepContext& context) {
  std::map<ValueId, ValueId> wide;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const bool reads_narrow = options.opt_level >= 2 && graph.nodes[i].op == "q.weight_only_matmul";
    if (reads_narrow || MakesNarrow(graph, graph.nodes[i])) continue;
    for (size_t k = 0; k < graph.nodes[i].inputs.size(); ++k) {
      const ValueId id = graph.nodes[i].inputs[k];
      const Tensor* narrow = ConstantOf(graph, id);
      if (narrow == nullptr || !IsNarrow(narrow->dtype())) continue;
      const auto [known, fresh] = wide.emplace(id, kNone);
      const std::string name = graph.value(id).name;  // adding values moves them
      if (fresh) known->second = graph.AddConstant(name, narrow->Widened());
      graph.nodes[i].inputs[k] = known->second;
    }
  }
  if (!wide.empty()) graph.Compact();
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return WidenIntegers(std::move(body), options, context); }));
  return graph;
}

}  // namespace quench::passes
