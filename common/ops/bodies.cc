#include "common/ops/bodies.h"

#include <algorithm>

#include "common/base/status.h"

namespace quench::ops {
namespace {

// One input of a body: its type and the outer value whose contents it has, or kNone.
struct BodyInput {
  Type type;
  ValueId same_as = quench::kNone;
};

absl::StatusOr<Graph> InferBody(const Graph& outer, const Node& node, const std::string& attribute,
                                const std::vector<BodyInput>& inputs) {
  Graph body = *node.Body(attribute);
  if (body.inputs.size() != inputs.size()) {
    return InvalidArgument("node `{}` ({}): `{}` has {} inputs, the node gives it {}", node.name,
                           node.op, attribute, body.inputs.size(), inputs.size());
  }
  body.symbols = outer.symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Value& value = body.value(body.inputs[i]);
    value.type = inputs[i].type;
    value.elements = std::nullopt;
    if (inputs[i].same_as == quench::kNone) continue;
    const Value& source = outer.value(inputs[i].same_as);
    value.elements = source.elements;
    if (source.constant == nullptr) continue;
    const OpContext::Operand operand{source.type, &source.constant->tensor, nullptr};
    const OpContext context(node, {operand}, {}, *outer.symbols);
    value.elements = context.elements(0);
  }
  QUENCH_RETURN_IF_ERROR(
      Annotate(InferGraph(body), fmt::format("node `{}`: {}", node.name, attribute)));
  return body;
}

void SetBody(Node& node, const std::string& attribute, Graph body) {
  node.attributes[attribute] = std::make_shared<const Graph>(std::move(body));
}

BodyInput Capture(const Graph& graph, ValueId id) {
  if (id == quench::kNone) return {};
  return {graph.value(id).type, id};
}

absl::Status InferAlike(Graph& graph, Node& node, const std::string& attribute, size_t first) {
  std::vector<BodyInput> inputs;
  for (size_t i = first; i < node.inputs.size(); ++i) {
    inputs.push_back(Capture(graph, node.inputs[i]));
  }
  QUENCH_ASSIGN_OR_RETURN(Graph body, InferBody(graph, node, attribute, inputs));
  SetBody(node, attribute, std::move(body));
  return absl::OkStatus();
}

// Replaces dims that an iteration changes by runtime dims. True when something was replaced.
absl::StatusOr<bool> Generalise(InferContext& context, int index, Type& carried, const Type& next) {
  if (next.dtype != carried.dtype || next.kind != carried.kind) {
    return context.Error(fmt::format("carried value {} goes in as {} and comes out as {}", index,
                                     DataTypeName(carried.dtype), DataTypeName(next.dtype)));
  }
  if (next.rank() != carried.rank()) {
    return context.UnsupportedError(fmt::format("carried value {} changes its rank from {} to {}",
                                                index, carried.rank(), next.rank()));
  }
  bool changed = false;
  for (int axis = 0; axis < carried.rank(); ++axis) {
    Dim& dim = carried.dims[static_cast<size_t>(axis)];
    if (dim == next.dims[static_cast<size_t>(axis)]) continue;
    const Dim runtime = context.RuntimeDim(kCarriedDim + 16 * index + axis, std::nullopt);
    changed = changed || dim != runtime;
    dim = runtime;
  }
  return changed;
}

// Infers the body of a Loop or Scan until the types of the carried values hold for every iteration.
// `inputs` holds the carried values from `first_input` on; the body gives them back from output
// `first_output` on.
absl::Status InferCarrying(Graph& graph, Node& node, InferContext& context,
                           std::vector<BodyInput> inputs, size_t first_input, size_t first_output) {
  const auto count = static_cast<size_t>(CarriedCount(node));
  for (;;) {
    QUENCH_ASSIGN_OR_RETURN(Graph body, InferBody(graph, node, "body", inputs));
    if (body.outputs.size() < first_output + count) {
      return context.Error(fmt::format("body has {} outputs, {} carried values need {}",
                                       body.outputs.size(), count, first_output + count));
    }
    bool changed = false;
    for (size_t i = 0; i < count; ++i) {
      const Type& next = body.value(body.outputs[first_output + i]).type;
      QUENCH_ASSIGN_OR_RETURN(const bool different, Generalise(context, static_cast<int>(i),
                                                               inputs[first_input + i].type, next));
      changed = changed || different;
    }
    if (!changed) {
      SetBody(node, "body", std::move(body));
      return absl::OkStatus();
    }
  }
}

absl::Status InferLoop(Graph& graph, Node& node, InferContext& context) {
  if (CarriedCount(node) < 0) return context.Error("`q.captures` is larger than its inputs allow");
  std::vector<BodyInput> inputs = {{Type::Tensor(DataType::kI64, {}), quench::kNone},
                                   {Type::Tensor(DataType::kBool, {}), quench::kNone}};
  const size_t first_capture = node.inputs.size() - static_cast<size_t>(CaptureCount(node));
  for (size_t i = 2; i < node.inputs.size(); ++i) {
    inputs.push_back(Capture(graph, node.inputs[i]));
    if (i < first_capture) inputs.back().same_as = quench::kNone;
  }
  return InferCarrying(graph, node, context, std::move(inputs), 2, 1);
}

absl::Status InferScan(Graph& graph, Node& node, InferContext& context) {
  const int64_t scans = node.Int("num_scan_inputs", 0);
  const int carried = CarriedCount(node);
  if (scans < 1 || carried < 0) {
    return context.Error(fmt::format(
        "num_scan_inputs is {}, {} inputs and {} captures allow 1 to {}", scans, node.inputs.size(),
        CaptureCount(node), static_cast<int64_t>(node.inputs.size()) - CaptureCount(node)));
  }
  const std::vector<int64_t> axes = node.Ints("scan_input_axes");
  std::vector<BodyInput> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(Capture(graph, node.inputs[i]));
    const int scan = static_cast<int>(i) - carried;
    if (scan < scans) inputs.back().same_as = quench::kNone;
    if (scan < 0 || scan >= scans) continue;
    Type& type = inputs.back().type;
    const int64_t wanted =
        static_cast<size_t>(scan) < axes.size() ? axes[static_cast<size_t>(scan)] : 0;
    QUENCH_ASSIGN_OR_RETURN(const int axis, context.Axis(wanted, type.rank()));
    type.dims.erase(type.dims.begin() + axis);
  }
  return InferCarrying(graph, node, context, std::move(inputs), 0, 0);
}

}  // namespace

int CaptureCount(const Node& node) {
  const int64_t inputs = static_cast<int64_t>(node.inputs.size());
  return static_cast<int>(std::clamp<int64_t>(node.Int("q.captures", 0), 0, inputs));
}

int CarriedCount(const Node& node) {
  const int64_t own = static_cast<int64_t>(node.inputs.size()) - CaptureCount(node);
  const int64_t others =
      node.op == "Loop" ? 2 : std::clamp<int64_t>(node.Int("num_scan_inputs", 0), 0, own + 1);
  return static_cast<int>(own - others);
}

absl::Status InferBodies(Graph& graph, Node& node, InferContext& context) {
  if (node.op == "If") {
    QUENCH_RETURN_IF_ERROR(InferAlike(graph, node, "then_branch", 1));
    return InferAlike(graph, node, "else_branch", 1);
  }
  if (node.op == "Loop") return InferLoop(graph, node, context);
  if (node.op == "Scan") return InferScan(graph, node, context);
  if (node.op == "q.fused") return InferAlike(graph, node, "body", 0);
  return absl::OkStatus();
}

}  // namespace quench::ops
