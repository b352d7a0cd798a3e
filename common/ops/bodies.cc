#include "common/ops/bodies.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "common/base/status.h"

namespace quench::ops {
namespace {

// One input of a body: its type and the outer value whose contents it has, or kNone.
struct BodyInput {
  Type type;
  ValueId same_as = quench::kNone;
};

absl::StatusOr<Graph> InferBody(const Graph& outer, const Node& node, const std::string& attribute,
                                const std::vector<BodyInput>& inputs, ChangingDims& changing) {
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
      Annotate(InferGraph(body, changing), fmt::format("node `{}`: {}", node.name, attribute)));
  return body;
}

void SetBody(Node& node, const std::string& attribute, Graph body) {
  node.attributes[attribute] = std::make_shared<const Graph>(std::move(body));
}

BodyInput Capture(const Graph& graph, ValueId id) {
  if (id == quench::kNone) return {};
  return {graph.value(id).type, id};
}

std::vector<BodyInput> InputsFrom(const Graph& graph, const Node& node, size_t first) {
  std::vector<BodyInput> inputs;
  for (size_t i = first; i < node.inputs.size(); ++i) {
    inputs.push_back(Capture(graph, node.inputs[i]));
  }
  return inputs;
}

absl::Status InferGroup(Graph& graph, Node& node, ChangingDims& changing) {
  QUENCH_ASSIGN_OR_RETURN(Graph body,
                          InferBody(graph, node, "body", InputsFrom(graph, node, 0), changing));
  SetBody(node, "body", std::move(body));
  return absl::OkStatus();
}

// ---- If ----

// The branches of an If that could be inferred, and why the others could not.
struct Branch {
  std::string attribute;
  std::optional<Graph> body;
  absl::Status failure;
};

absl::StatusOr<Branch> InferBranch(const Graph& graph, const Node& node,
                                   const std::string& attribute, ChangingDims& changing) {
  Branch branch{attribute, std::nullopt, absl::OkStatus()};
  if (const std::string failure = FailureOf(*node.Body(attribute)); !failure.empty()) {
    branch.failure = absl::InvalidArgumentError(failure);
    return branch;
  }
  absl::StatusOr<Graph> body =
      InferBody(graph, node, attribute, InputsFrom(graph, node, 1), changing);
  if (body.ok()) {
    branch.body = *std::move(body);
  } else if (absl::IsInvalidArgument(body.status()) || absl::IsUnimplemented(body.status())) {
    branch.failure = body.status();
  } else {
    return body.status();
  }
  return branch;
}

// A branch that is nothing but `op` of one of its inputs: that input, else kNone.
ValueId OnlyOperand(const Graph& body, const std::string& op) {
  if (body.nodes.size() != 1 || body.nodes[0].op != op || body.outputs.size() != 1 ||
      body.outputs[0] != body.nodes[0].outputs[0]) {
    return quench::kNone;
  }
  return body.nodes[0].inputs[0];
}

// The form that exporters write for "drop this axis" where they do not know that its size is 1: one
// branch drops it, the other hands the tensor on as it is. Only one of the two ranks can be
// compiled, and it is the one that the model's author asked for.
void SettleRank(const Node& node, Branch& squeezed, Branch& same) {
  if (!squeezed.body || !same.body) return;
  const ValueId dropped = OnlyOperand(*squeezed.body, "Squeeze");
  if (dropped == quench::kNone || same.body->outputs.size() != 1) return;
  ValueId handed_on = OnlyOperand(*same.body, "Identity");
  if (same.body->nodes.empty()) handed_on = same.body->outputs[0];
  const auto position = [](const Graph& body, ValueId id) {
    return std::find(body.inputs.begin(), body.inputs.end(), id) - body.inputs.begin();
  };
  if (handed_on == quench::kNone ||
      position(*squeezed.body, dropped) != position(*same.body, handed_on)) {
    return;
  }
  const int rank = squeezed.body->value(squeezed.body->outputs[0]).type.rank();
  const int other = same.body->value(same.body->outputs[0]).type.rank();
  if (rank == other) return;
  same.failure = InvalidArgument(
      "node `{}`: {} gives a tensor of rank {}, the model is compiled for rank {}, as {} gives it",
      node.name, same.attribute, other, rank, squeezed.attribute);
  same.body.reset();
}

// A body in the place of a branch that cannot run: outputs of the types of the other branch's, none
// of which is ever computed.
Graph FailingBody(const Graph& graph, const Node& node, const Branch& branch, const Graph& other) {
  Graph body;
  body.name = node.Body(branch.attribute)->name;
  body.symbols = graph.symbols;
  const Graph& original = *node.Body(branch.attribute);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const bool named = i <= original.inputs.size();
    body.AddInput(named ? original.value(original.inputs[i - 1]).name : "capture",
                  graph.value(node.inputs[i]).type);
  }
  std::vector<std::string> dtypes;
  std::vector<int64_t> ranks;
  for (const ValueId id : other.outputs) {
    dtypes.emplace_back(DataTypeName(other.value(id).type.dtype));
    ranks.push_back(other.value(id).type.rank());
  }
  const NodeId fail = body.AddNode("q.fail", fmt::format("{}/{}", node.name, branch.attribute), {},
                                   static_cast<int>(other.outputs.size()),
                                   {{"message", MessageOf(branch.failure)},
                                    {"dtypes", std::move(dtypes)},
                                    {"ranks", std::move(ranks)}});
  body.outputs = body.node(fail).outputs;
  return body;
}

// A branch that cannot be inferred is one that a run with these shapes does not take: exporters write
// conditions for shapes that they could not see. It becomes a failure of the run that takes it.
absl::Status InferIf(Graph& graph, Node& node, const InferContext& context,
                     ChangingDims& changing) {
  std::array<Branch, 2> branches;
  QUENCH_ASSIGN_OR_RETURN(branches[0], InferBranch(graph, node, "then_branch", changing));
  QUENCH_ASSIGN_OR_RETURN(branches[1], InferBranch(graph, node, "else_branch", changing));
  SettleRank(node, branches[0], branches[1]);
  SettleRank(node, branches[1], branches[0]);
  const auto condition = context.ints(0);
  const bool known = condition && condition->size() == 1;
  for (size_t i = 0; i < 2; ++i) {
    const Branch& branch = branches[i];
    const bool taken = known && (condition->front() != 0) == (i == 0);
    if (branch.body || (branches[1 - i].body && !taken)) continue;
    StatusCollector problems;
    for (const Branch& each : branches) {
      if (!each.body) problems.Add(each.failure);
    }
    return problems.Finish();
  }
  for (size_t i = 0; i < 2; ++i) {
    if (branches[i].body) continue;
    Graph body = FailingBody(graph, node, branches[i], *branches[1 - i].body);
    QUENCH_RETURN_IF_ERROR(InferGraph(body, changing));
    branches[i].body = std::move(body);
  }
  for (Branch& branch : branches) SetBody(node, branch.attribute, *std::move(branch.body));
  return absl::OkStatus();
}

// The dims of a loop's carried values that iterations change.
class CarriedDims {
 public:
  CarriedDims(const Node& node, InferContext& context, ChangingDims& changing)
      : node_(node), context_(context), changing_(changing) {}

  // As far as they are known already.
  void Settle(int index, Type& carried) {
    for (int axis = 0; axis < carried.rank(); ++axis) {
      const int dim = NumberOf(index, axis);
      if (changing_.contains({node_.name, dim}))
        carried.dims[static_cast<size_t>(axis)] = context_.RuntimeDim(dim, std::nullopt);
    }
  }

  // Replaces dims that an iteration changes by runtime dims. True when something was replaced.
  absl::StatusOr<bool> Generalise(int index, Type& carried, const Type& next) {
    if (next.dtype != carried.dtype || next.kind != carried.kind) {
      return context_.Error(fmt::format("carried value {} goes in as {} and comes out as {}", index,
                                        DataTypeName(carried.dtype), DataTypeName(next.dtype)));
    }
    if (next.rank() != carried.rank()) {
      return context_.UnsupportedError(fmt::format(
          "carried value {} changes its rank from {} to {}", index, carried.rank(), next.rank()));
    }
    bool changed = false;
    for (int axis = 0; axis < carried.rank(); ++axis) {
      Dim& dim = carried.dims[static_cast<size_t>(axis)];
      if (dim == next.dims[static_cast<size_t>(axis)]) continue;
      const Dim runtime = context_.RuntimeDim(NumberOf(index, axis), std::nullopt);
      changing_.insert({node_.name, NumberOf(index, axis)});
      changed = changed || dim != runtime;
      dim = runtime;
    }
    return changed;
  }

 private:
  static int NumberOf(int index, int axis) { return kCarriedDim + 16 * index + axis; }

  const Node& node_;
  InferContext& context_;
  ChangingDims& changing_;
};

// Infers the body of a Loop or Scan until the types of the carried values hold for every iteration.
// `inputs` holds the carried values from `first_input` on; the body gives them back from output
// `first_output` on.
absl::Status InferCarrying(Graph& graph, Node& node, InferContext& context, ChangingDims& changing,
                           std::vector<BodyInput> inputs, size_t first_input, size_t first_output) {
  const auto count = static_cast<size_t>(CarriedCount(node));
  CarriedDims carried(node, context, changing);
  for (size_t i = 0; i < count; ++i)
    carried.Settle(static_cast<int>(i), inputs[first_input + i].type);
  for (;;) {
    QUENCH_ASSIGN_OR_RETURN(Graph body, InferBody(graph, node, "body", inputs, changing));
    if (body.outputs.size() < first_output + count) {
      return context.Error(fmt::format("body has {} outputs, {} carried values need {}",
                                       body.outputs.size(), count, first_output + count));
    }
    bool changed = false;
    for (size_t i = 0; i < count; ++i) {
      const Type& next = body.value(body.outputs[first_output + i]).type;
      QUENCH_ASSIGN_OR_RETURN(
          const bool different,
          carried.Generalise(static_cast<int>(i), inputs[first_input + i].type, next));
      changed = changed || different;
    }
    if (!changed) {
      SetBody(node, "body", std::move(body));
      return absl::OkStatus();
    }
  }
}

absl::Status InferLoop(Graph& graph, Node& node, InferContext& context, ChangingDims& changing) {
  if (CarriedCount(node) < 0) return context.Error("`q.captures` is larger than its inputs allow");
  std::vector<BodyInput> inputs = {{Type::Tensor(DataType::kI64, {}), quench::kNone},
                                   {Type::Tensor(DataType::kBool, {}), quench::kNone}};
  const size_t first_capture = node.inputs.size() - static_cast<size_t>(CaptureCount(node));
  for (size_t i = 2; i < node.inputs.size(); ++i) {
    inputs.push_back(Capture(graph, node.inputs[i]));
    if (i < first_capture) inputs.back().same_as = quench::kNone;
  }
  return InferCarrying(graph, node, context, changing, std::move(inputs), 2, 1);
}

absl::Status InferScan(Graph& graph, Node& node, InferContext& context, ChangingDims& changing) {
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
  return InferCarrying(graph, node, context, changing, std::move(inputs), 0, 0);
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

std::string FailureOf(const Graph& body) {
  if (body.nodes.size() != 1 || body.nodes[0].op != "q.fail") return "";
  return body.nodes[0].String("message", "");
}

absl::Status InferBodies(Graph& graph, Node& node, InferContext& context, ChangingDims& changing) {
  if (node.op == "If") return InferIf(graph, node, context, changing);
  if (node.op == "Loop") return InferLoop(graph, node, context, changing);
  if (node.op == "Scan") return InferScan(graph, node, context, changing);
  if (node.IsGroup()) return InferGroup(graph, node, changing);
  return absl::OkStatus();
}

}  // namespace quench::ops
