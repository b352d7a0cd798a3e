// Removes operations that change nothing.
//   pre: types inferred
//   Identity, Dropout without mask, Cast to the same dtype, Reshape/Expand/Flatten/... to the same
//   shape, Transpose in order, Concat or Sum of one, x * 1, x + 0 ...
//     ==>   their input
//   case: IdentitiesTest
#include <algorithm>

#include "common/base/status.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

bool AllEqual(const Tensor* constant, double value) {
  if (constant == nullptr || constant->size() == 0 || constant->size() > 4096) return false;
  if (constant->dtype() == DataType::kString || IsComplex(constant->dtype())) return false;
  for (int64_t i = 0; i < constant->size(); ++i) {
    if (constant->FloatAt(i) != value) return false;
  }
  return true;
}

bool PermutesNothing(const Graph& graph, const Node& node) {
  const std::vector<int64_t> permutation = node.Ints("perm");
  if (permutation.empty()) return graph.value(node.inputs[0]).type.rank() <= 1;
  return std::is_sorted(permutation.begin(), permutation.end());
}

bool KeepsEverything(const Graph& graph, const Node& node) {
  // Slice that gives the same shape with positive steps keeps every element where it is.
  const Tensor* steps = node.inputs.size() > 4 ? ConstantOf(graph, node.inputs[4]) : nullptr;
  if (node.inputs.size() <= 4 || node.inputs[4] == kNone) return true;
  if (steps == nullptr) return false;
  const std::vector<int64_t> values = steps->ToInts();
  return std::all_of(values.begin(), values.end(), [](int64_t step) { return step > 0; });
}

bool OnlyFirstOutputUsed(const Node& node, const std::vector<int>& uses) {
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNone && uses[static_cast<size_t>(node.outputs[i])] > 0) return false;
  }
  return true;
}

// The operand a neutral element leaves alone (x * 1, x + 0, ...), or kNone.
ValueId NeutralOperand(const Graph& graph, const Node& node) {
  const bool additive = node.op == "Add" || node.op == "Sub";
  const bool multiplicative = node.op == "Mul" || node.op == "Div" || node.op == "Pow";
  if (!additive && !multiplicative) return kNone;
  const double neutral = additive ? 0.0 : 1.0;
  if (AllEqual(ConstantOf(graph, node.inputs[1]), neutral)) return node.inputs[0];
  const bool commutes = node.op == "Add" || node.op == "Mul";
  return commutes && AllEqual(ConstantOf(graph, node.inputs[0]), neutral) ? node.inputs[1] : kNone;
}

ValueId UnchangedInput(const Graph& graph, const Node& node, const std::vector<int>& uses) {
  if (const ValueId operand = NeutralOperand(graph, node); operand != kNone) return operand;
  if (node.inputs.empty() || node.inputs[0] == kNone) return kNone;
  const ValueId input = node.inputs[0];
  if (node.op == "Identity") return input;
  if (node.op == "Dropout") return OnlyFirstOutputUsed(node, uses) ? input : kNone;
  static constexpr std::string_view kShapeOnly[] = {"Cast",    "Reshape", "Squeeze", "Unsqueeze",
                                                    "Flatten", "Expand",  "Tile",    "Split"};
  if (std::find(std::begin(kShapeOnly), std::end(kShapeOnly), node.op) != std::end(kShapeOnly))
    return input;
  if (node.op == "Transpose") return PermutesNothing(graph, node) ? input : kNone;
  if (node.op == "Slice") return KeepsEverything(graph, node) ? input : kNone;
  // Negative pads remove: what is added at one end may be removed at the other.
  if (node.op == "Pad") return AllEqual(ConstantOf(graph, node.inputs[1]), 0) ? input : kNone;
  static constexpr std::string_view kVariadic[] = {"Concat", "Sum", "Max", "Min", "Mean"};
  if (std::find(std::begin(kVariadic), std::end(kVariadic), node.op) != std::end(kVariadic)) {
    return node.inputs.size() == 1 ? input : kNone;
  }
  return kNone;
}

}  // namespace

absl::StatusOr<Graph> RemoveIdentities(Graph graph, const PassOptions& options,
                                       const StepContext& context) {
  const std::vector<int> uses = graph.UseCounts();
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.outputs.empty() || node.outputs[0] == kNone) continue;
    const ValueId input = UnchangedInput(graph, node, uses);
    // Whatever the operation, equal types are what makes it safe: same dtype, same dims, provably.
    if (input != kNone && graph.value(input).type == graph.value(node.outputs[0]).type &&
        graph.value(input).type.known() && graph.value(input).type.ranked) {
      Replace(graph, node.outputs[0], input);
    }
  }
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return RemoveIdentities(std::move(body), options, context); }));
  return graph;
}

}  // namespace quench::passes
