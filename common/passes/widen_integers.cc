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

}  // namespace

absl::Status WidenIntegers(Graph& graph, const std::function<bool(const Node&)>& reads_narrow) {
  std::map<ValueId, ValueId> wide;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (reads_narrow(graph.nodes[i])) continue;
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
  const auto widen = [&](Graph body) -> absl::StatusOr<Graph> {
    QUENCH_RETURN_IF_ERROR(WidenIntegers(body, reads_narrow));
    return body;
  };
  QUENCH_RETURN_IF_ERROR(ForEachBody(graph, widen));
  if (wide.empty()) return absl::OkStatus();
  graph.Compact();
  return ops::InferGraph(graph);  // what only moves elements moves wider ones
}

}  // namespace quench::passes
