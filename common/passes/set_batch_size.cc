// Fixes the batch size of every input to --batch.
//   pre: options.batch > 0, else nothing happens
//   x: f32[n, 3, 224, 224]  ==>  x: f32[8, 3, 224, 224], everywhere n was
//   x: f32[1, 3, 224, 224]  ==>  the same; Reshape targets that repeat the old batch size keep
//   their input's instead
//   case: SetBatchSizeTest
#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

// A Reshape target that starts with the old batch size means "keep the batch": 0 says so for any
// batch.
void FreeReshapeTargets(Graph& graph, int64_t old_batch) {
  const size_t count = graph.nodes.size();
  for (size_t i = 0; i < count; ++i) {
    Node& node = graph.nodes[i];
    if (node.op != "Reshape" || node.Int("allowzero", 0) != 0) continue;
    const Tensor* target = ConstantOf(graph, node.inputs[1]);
    const Type& data = graph.value(node.inputs[0]).type;
    if (target == nullptr || target->size() == 0 || data.rank() == 0 || !data.dims[0].is(old_batch))
      continue;
    std::vector<int64_t> dims = target->ToInts();
    if (dims[0] != old_batch) continue;
    dims[0] = 0;
    const ValueId freed = graph.AddConstant(node.name + ".shape", Tensor::I64(dims));
    graph.nodes[i].inputs[1] = freed;
  }
}

}  // namespace

absl::StatusOr<Graph> SetBatchSize(Graph graph, const PassOptions& options,
                                   const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(context.Check());
  if (options.batch <= 0) return graph;
  if (graph.inputs.empty() || graph.value(graph.inputs[0]).type.rank() == 0) {
    return InvalidArgument("--batch {}: the model's first input has no batch dim", options.batch);
  }
  const Dim batch = graph.value(graph.inputs[0]).type.dims[0];
  if (!batch.is_static()) {
    const Symbol& symbol = graph.symbols->at(batch.symbol());
    if (!symbol.is_input()) {
      return InvalidArgument("--batch {}: the first dim of input `{}` is the expression {}",
                             options.batch, graph.value(graph.inputs[0]).name,
                             graph.symbols->ToString(batch));
    }
    QUENCH_ASSIGN_OR_RETURN(graph, BindSymbols(graph, {{symbol.name, options.batch}}));
  } else {
    if (batch.value() != options.batch) FreeReshapeTargets(graph, batch.value());
    for (const ValueId id : graph.inputs) {
      Type& type = graph.value(id).type;
      if (type.rank() > 0 && type.dims[0] == batch) type.dims[0] = options.batch;
    }
  }
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));
  return graph;
}

}  // namespace quench::passes
