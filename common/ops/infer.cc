// Types and symbolic contents of every value, from those of the graph's inputs and constants.
#include <algorithm>
#include <set>

#include "common/base/status.h"
#include "common/ops/bodies.h"
#include "common/ops/op.h"

namespace quench::ops {
namespace {

std::vector<std::optional<OpContext::Operand>> Operands(const Graph& graph, const Node& node) {
  std::vector<std::optional<OpContext::Operand>> operands;
  for (const ValueId id : node.inputs) {
    if (id == quench::kNone) {
      operands.emplace_back();
      continue;
    }
    const Value& value = graph.value(id);
    OpContext::Operand operand{value.type, nullptr, &value.elements};
    if (value.constant != nullptr) operand.constant = &value.constant->tensor;
    operands.emplace_back(std::move(operand));
  }
  return operands;
}

// Operators see ranked tensors only.
absl::Status CheckOperandTypes(const Graph& graph, const Node& node) {
  StatusCollector problems;
  for (const ValueId id : node.inputs) {
    if (id == quench::kNone) continue;
    const Value& value = graph.value(id);
    const std::string where =
        fmt::format("node `{}` ({}): input `{}`", node.name, node.op, value.name);
    if (value.type.kind != ValueKind::kTensor) {
      problems.Add(
          Unsupported("{} is a sequence, optional or map, {} takes tensors", where, node.op));
    } else if (!value.type.known()) {
      problems.Add(InvalidArgument("{} has no type", where));
    } else if (!value.type.ranked) {
      problems.Add(Unsupported("{} has a rank that only a run can tell", where));
    }
  }
  return problems.Finish();
}

}  // namespace

OpContext ContextOf(const Graph& graph, const Node& node) {
  std::vector<Type> outputs;
  for (const ValueId id : node.outputs) {
    outputs.push_back(id == quench::kNone ? Type{} : graph.value(id).type);
  }
  return OpContext(node, Operands(graph, node), std::move(outputs), *graph.symbols);
}

namespace {

absl::Status InferOne(Graph& graph, Node& node, ChangingDims& changing) {
  QUENCH_RETURN_IF_ERROR(CheckNode(graph, node));
  QUENCH_RETURN_IF_ERROR(CheckOperandTypes(graph, node));
  const OpDef& op = *FindOp(node.op);
  InferContext context(node, Operands(graph, node), std::vector<Type>(node.outputs.size()),
                       *graph.symbols);
  QUENCH_RETURN_IF_ERROR(InferBodies(graph, node, context, changing));
  QUENCH_RETURN_IF_ERROR(op.infer(context));
  context.output_elements().resize(node.outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == quench::kNone) continue;
    Value& value = graph.value(node.outputs[i]);
    QUENCH_CHECK(context.outputs()[i].known());  // `infer` sets every output
    value.type = std::move(context.outputs()[i]);
    value.elements = std::move(context.output_elements()[i]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InferNode(Graph& graph, Node& node) {
  ChangingDims changing;
  return InferOne(graph, node, changing);
}

absl::Status InferGraph(Graph& graph) {
  ChangingDims changing;
  return InferGraph(graph, changing);
}

absl::Status InferGraph(Graph& graph, ChangingDims& changing) {
  StatusCollector problems;
  // outputs of nodes that could not be inferred: their users say nothing new
  std::set<ValueId> failed;
  for (Node& node : graph.nodes) {
    bool blocked = false;
    for (const ValueId id : node.inputs) blocked = blocked || failed.contains(id);
    if (!blocked) {
      const absl::Status status = InferOne(graph, node, changing);
      problems.Add(status);
      blocked = !status.ok();
    }
    for (const ValueId id : node.outputs) {
      if (blocked && id != quench::kNone) failed.insert(id);
    }
  }
  return problems.Finish();
}

}  // namespace quench::ops
