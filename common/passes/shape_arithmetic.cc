// Computes shapes while compiling instead of while running.
//   pre: types and elements inferred
//   x -> Shape -> Gather -> Concat -> s; y, s -> Reshape
//     ==>   y, [1, 64] -> Reshape         when all sizes are known
//     ==>   y, q.dims(n, 64) -> Reshape   when some are symbolic
//   case: ShapeArithmeticTest
#include <algorithm>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

Tensor ToTensor(const Type& type, const std::vector<Dim>& elements) {
  std::vector<int64_t> dims;
  if (type.rank() == 1) dims.push_back(static_cast<int64_t>(elements.size()));
  std::vector<int64_t> values;
  for (const Dim element : elements) values.push_back(element.value());
  if (type.dtype == DataType::kI32) {
    return Tensor::Of(DataType::kI32, dims, std::vector<int32_t>(values.begin(), values.end()));
  }
  return Tensor::Of(DataType::kI64, dims, values);
}

bool Resolvable(const Graph& graph, const Value& value) {
  if (!value.elements || value.producer == kNone || value.type.kind != ValueKind::kTensor ||
      !value.type.ranked) {
    return false;
  }
  if (value.type.dtype != DataType::kI64 && value.type.dtype != DataType::kI32) return false;
  if (value.type.rank() > 1 || graph.node(value.producer).op == "q.dims") return false;
  return value.type.rank() == 1 || value.elements->size() == 1;
}

// `symbolic`: may a q.dims node be made? Not in bodies: their symbols are those of the whole
// module.
absl::Status Resolve(Graph& graph, ValueId id, bool symbolic) {
  const std::vector<Dim> elements = *graph.value(id).elements;
  const Type type = graph.value(id).type;
  const std::string name = graph.value(id).name;
  if (std::all_of(elements.begin(), elements.end(), [](Dim dim) { return dim.is_static(); })) {
    graph.ReplaceUses(id, graph.AddConstant(name, ToTensor(type, elements)));
    return absl::OkStatus();
  }
  const bool at_run_time = std::any_of(elements.begin(), elements.end(), [&](Dim dim) {
    return graph.symbols->DependsOnRuntime(dim);
  });
  if (!symbolic || at_run_time || type.rank() != 1 || type.dtype != DataType::kI64)
    return absl::OkStatus();
  std::vector<std::string> texts;
  for (const Dim element : elements) texts.push_back(graph.symbols->ToString(element));
  // An abbreviation has a meaning in this table only, and a module that is written and read again
  // has another one.
  const auto abbreviated = [](const std::string& text) { return text.find('$') != text.npos; };
  if (std::any_of(texts.begin(), texts.end(), abbreviated)) return absl::OkStatus();
  const NodeId node = graph.AddNode("q.dims", name, {}, 1, {{"dims", texts}});
  QUENCH_RETURN_IF_ERROR(ops::InferNode(graph, graph.node(node)));
  graph.ReplaceUses(id, graph.node(node).outputs[0]);
  return absl::OkStatus();
}

absl::StatusOr<Graph> ResolveGraph(Graph graph, bool symbolic) {
  const std::vector<int> uses = graph.UseCounts();
  const size_t count = graph.values.size();
  for (size_t i = 0; i < count; ++i) {
    const ValueId id = static_cast<ValueId>(i);
    if (uses[i] > 0 && !graph.IsOutput(id) && Resolvable(graph, graph.value(id))) {
      QUENCH_RETURN_IF_ERROR(Resolve(graph, id, symbolic));
    }
  }
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(
      ForEachBody(graph, [](Graph body) { return ResolveGraph(std::move(body), false); }));
  return graph;
}

}  // namespace

absl::StatusOr<Graph> ResolveShapeArithmetic(Graph graph, const PassOptions&,
                                             const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(context.Check());
  return ResolveGraph(std::move(graph), true);
}

}  // namespace quench::passes
