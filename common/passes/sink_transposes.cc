// Moves Transposes down, behind operators that work in any order of axes, where they meet others and
// cancel. Models with channels last come as convolutions between Transposes: afterwards one is left
// at each end.
//   pre: types inferred, topological order
//   Transpose(x) -> Relu -> Transpose back -> Conv   ==>   x -> Relu -> Conv
//   Transpose(a), Transpose(b) -> Add -> y   ==>   a, b -> Add -> Transpose -> y;   constants move along
//   A Transpose that only moves axes of size 1 is a Reshape.
//   The graph stays as it was unless fewer Transposes are left.
//   case: sink_transposes.ir.txt

#include <algorithm>
#include <numeric>
#include <optional>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

using AxisOrder = std::vector<int64_t>;

size_t Place(int64_t i) { return static_cast<size_t>(i); }

int64_t NonNegative(int64_t axis, size_t rank) {
  return axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
}

AxisOrder InverseOrder(const AxisOrder& order) {
  AxisOrder inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[Place(order[i])] = static_cast<int64_t>(i);
  return inverse;
}

bool IsIdentityOrder(const AxisOrder& order) { return std::is_sorted(order.begin(), order.end()); }

int64_t CountTransposes(const Graph& graph) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [](const Node& node) { return node.op == "Transpose"; });
}

class TransposeSinker {
 public:
  TransposeSinker(Graph& graph, const StepContext& context) : graph_(graph), context_(context) {}

  absl::Status Run() {
    const size_t nodes = graph_.nodes.size();
    for (size_t i = 0; i < nodes; ++i) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      const auto id = static_cast<NodeId>(i);
      if (graph_.node(id).op == "Transpose") {
        Compose(id);
      } else {
        QUENCH_RETURN_IF_ERROR(Sink(id));
      }
    }
    return absl::OkStatus();
  }

 private:
  // The Transpose that makes a value, and its whole order.
  const Node* TransposeOf(ValueId id) const {
    if (id == kNone || graph_.value(id).producer == kNone) return nullptr;
    const Node& node = graph_.node(graph_.value(id).producer);
    return node.op == "Transpose" && graph_.value(node.inputs[0]).type.ranked ? &node : nullptr;
  }
  AxisOrder OrderOf(const Node& transpose) const {
    AxisOrder order = transpose.Ints("perm");
    const auto rank = Place(graph_.value(transpose.inputs[0]).type.rank());
    if (order.empty() && rank > 0) {
      order.resize(rank);
      std::iota(order.rbegin(), order.rend(), 0);
    }
    for (int64_t& axis : order) axis = NonNegative(axis, rank);
    return order;
  }

  // Two Transposes are one, or none.
  void Compose(NodeId id) {
    const Node node = graph_.node(id);
    const Node* above = TransposeOf(node.inputs[0]);
    if (above == nullptr) return BecomeReshape(id);
    const AxisOrder first = OrderOf(*above), second = OrderOf(node);
    AxisOrder both;
    for (const int64_t axis : second) both.push_back(first[Place(axis)]);
    const ValueId source = above->inputs[0];
    if (IsIdentityOrder(both)) {
      Replace(graph_, node.outputs[0], source);
      return;
    }
    graph_.node(id).inputs[0] = source;
    graph_.node(id).attributes["perm"] = both;
    BecomeReshape(id);
  }

  // Where only axes of size 1 change their places.
  void BecomeReshape(NodeId id) {
    Node& node = graph_.node(id);
    const Type& type = graph_.value(node.inputs[0]).type;
    if (!type.ranked) return;
    const AxisOrder order = OrderOf(node);
    int64_t last = -1;
    for (const int64_t axis : order) {
      if (type.dims[Place(axis)].is(1)) continue;
      if (axis < last) return;
      last = axis;
    }
    std::vector<int64_t> shape;
    for (const int64_t axis : order) {
      const Dim dim = type.dims[Place(axis)];
      if (dim.is(0)) return;
      shape.push_back(dim.is_static() ? dim.value() : -1);
    }
    if (std::count(shape.begin(), shape.end(), -1) > 1) return;
    const ValueId constant = graph_.AddConstant(node.name + "/shape", Tensor::I64(shape));
    Node& reshape = graph_.node(id);
    reshape.op = "Reshape";
    reshape.inputs.push_back(constant);
    reshape.attributes.clear();
  }

  // The order that all inputs of that shape come in, if they do.
  std::optional<AxisOrder> CommonOrder(const Node& node, const std::vector<size_t>& data) const {
    std::optional<AxisOrder> common;
    for (const size_t i : data) {
      const ValueId id = node.inputs[i];
      if (id == kNone || IsSmall(id)) continue;
      if (const Node* transpose = TransposeOf(id)) {
        const AxisOrder order = OrderOf(*transpose);
        if (common && *common != order) return std::nullopt;
        common = order;
      } else if (graph_.value(id).constant == nullptr) {
        return std::nullopt;
      }
    }
    if (!common || IsIdentityOrder(*common)) return std::nullopt;
    for (const size_t i : data) {
      const ValueId id = node.inputs[i];
      if (id != kNone && graph_.value(id).type.dims.size() > common->size()) return std::nullopt;
    }
    return common;
  }

  // One element, whatever the order.
  bool IsSmall(ValueId id) const {
    const Type& type = graph_.value(id).type;
    return type.ranked &&
           std::all_of(type.dims.begin(), type.dims.end(), [](Dim dim) { return dim.is(1); });
  }

  absl::Status Sink(NodeId id) {
    const Node node = graph_.node(id);
    const ops::OpDef* op = ops::FindOp(node.op);
    if (op == nullptr || op->kind == ops::OpKind::kControl || node.inputs.empty())
      return absl::OkStatus();
    const bool broadcasts = op->kind == ops::OpKind::kPointwise && op->operand_axes == nullptr;
    if (!broadcasts && op->axes == ops::AxisRole::kFixed) return absl::OkStatus();
    std::vector<size_t> data = {0};
    if (broadcasts || op->axes == ops::AxisRole::kAxis) {
      data.resize(node.inputs.size());
      std::iota(data.begin(), data.end(), size_t{0});
    }
    const std::optional<AxisOrder> order = CommonOrder(node, data);
    if (!order) return absl::OkStatus();
    for (const ValueId output : node.outputs) {
      if (output != kNone && !graph_.value(output).type.ranked) return absl::OkStatus();
    }
    Node moved = node;
    AxisOrder result = *order;
    if (!broadcasts && !Reorder(*op, *order, moved, result)) return absl::OkStatus();
    for (const size_t i : data) {
      const ValueId input = node.inputs[i];
      if (input == kNone || IsSmall(input)) continue;
      if (const Node* transpose = TransposeOf(input)) {
        moved.inputs[i] = transpose->inputs[0];
      } else {
        QUENCH_ASSIGN_OR_RETURN(moved.inputs[i], Reordered(input, *order));
      }
    }
    return Emit(id, std::move(moved), result);
  }

  // A constant as the operator wants it before the Transpose.
  absl::StatusOr<ValueId> Reordered(ValueId id, const AxisOrder& order) {
    const Tensor constant = graph_.value(id).constant->tensor;
    std::vector<int64_t> dims(order.size() - constant.dims().size(), 1);
    dims.insert(dims.end(), constant.dims().begin(), constant.dims().end());
    const Tensor whole = constant.Reshaped(dims);
    Node transpose;
    transpose.name = graph_.value(id).name;
    transpose.op = "Transpose";
    transpose.inputs = {0};
    transpose.outputs = {1};
    transpose.attributes["perm"] = InverseOrder(order);
    const Tensor* const inputs[] = {&whole};
    QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> results,
                            ops::EvaluateNode(transpose, inputs, context_));
    return graph_.AddConstant(graph_.value(id).name, std::move(results.at(0)));
  }

  // Rewrites what names axes; `result` becomes the order behind the operator. False: it stays where
  // it is.
  bool Reorder(const ops::OpDef& op, const AxisOrder& order, Node& node, AxisOrder& result) {
    switch (op.axes) {
      case ops::AxisRole::kAxis:
      case ops::AxisRole::kAxisOfFirst:
        return ReorderAxis(order, node);
      case ops::AxisRole::kReduced:
        return ReorderReduced(order, node, result);
      case ops::AxisRole::kPerAxis:
        return ReorderPerAxis(order, node);
      case ops::AxisRole::kListed:
        return ReorderListed(order, node);
      case ops::AxisRole::kFixed:
        return false;
    }
    return false;
  }

  bool ReorderAxis(const AxisOrder& order, Node& node) {
    if (node.Int("block_size", 0) != 0) return false;
    const auto axis = node.attributes.find("axis");
    if (axis != node.attributes.end()) {
      axis->second = order[Place(NonNegative(node.Int("axis", 0), order.size()))];
      return true;
    }
    // A scale of the whole tensor has no axis.
    return node.inputs.size() > 1 && node.inputs[1] != kNone && IsSmall(node.inputs[1]);
  }

  std::optional<std::vector<int64_t>> KnownInts(const Node& node, size_t input) const {
    if (input >= node.inputs.size() || node.inputs[input] == kNone) return std::nullopt;
    const Tensor* constant = ConstantOf(graph_, node.inputs[input]);
    if (constant == nullptr) return std::nullopt;
    return constant->ToInts();
  }

  bool ReorderReduced(const AxisOrder& order, Node& node, AxisOrder& result) {
    std::optional<std::vector<int64_t>> axes = KnownInts(node, 1);
    if (!axes || axes->empty()) return false;
    std::vector<bool> reduced(order.size(), false);
    for (int64_t& axis : *axes) {
      axis = order[Place(NonNegative(axis, order.size()))];
      reduced[Place(axis)] = true;
    }
    std::sort(axes->begin(), axes->end());
    node.inputs[1] = graph_.AddConstant(node.name + "/axes", Tensor::I64(*axes));
    if (node.Int("keepdims", 1) != 0) return true;
    // Places of the axes that are left.
    std::vector<int64_t> place(order.size(), 0);
    for (size_t axis = 1; axis < order.size(); ++axis)
      place[axis] = place[axis - 1] + (reduced[axis - 1] ? 0 : 1);
    result.clear();
    for (const int64_t axis : order) {
      if (!reduced[Place(axis)]) result.push_back(place[Place(axis)]);
    }
    return true;
  }

  bool ReorderPerAxis(const AxisOrder& order, Node& node) {
    const std::optional<std::vector<int64_t>> given = KnownInts(node, 1);
    const bool some = node.inputs.size() > 3 && node.inputs[3] != kNone;
    if (some || !given || given->size() != 2 * order.size()) return false;
    std::vector<int64_t> moved(given->size());
    for (size_t i = 0; i < order.size(); ++i) {
      moved[Place(order[i])] = (*given)[i];
      moved[Place(order[i]) + order.size()] = (*given)[i + order.size()];
    }
    node.inputs[1] = graph_.AddConstant(node.name + "/pads", Tensor::I64(moved));
    return true;
  }

  bool ReorderListed(const AxisOrder& order, Node& node) {
    std::optional<std::vector<int64_t>> axes = KnownInts(node, 3);
    if (!axes) {
      const std::optional<std::vector<int64_t>> starts = KnownInts(node, 1);
      if ((node.inputs.size() > 3 && node.inputs[3] != kNone) || !starts) return false;
      axes.emplace(starts->size());
      std::iota(axes->begin(), axes->end(), 0);
    }
    for (int64_t& axis : *axes) axis = order[Place(NonNegative(axis, order.size()))];
    node.inputs.resize(std::max<size_t>(node.inputs.size(), 4), kNone);
    node.inputs[3] = graph_.AddConstant(node.name + "/axes", Tensor::I64(*axes));
    return true;
  }

  // `moved` in the place of node `id`, a Transpose behind each of its outputs.
  absl::Status Emit(NodeId id, Node moved, const AxisOrder& order) {
    const std::vector<ValueId> outputs = graph_.node(id).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == kNone) continue;
      const std::string name = graph_.value(outputs[i]).name;
      moved.outputs[i] = graph_.AddValue(name + "/order");
    }
    graph_.node(id) = moved;
    for (const ValueId output : moved.outputs) {
      if (output != kNone) graph_.value(output).producer = id;
    }
    QUENCH_RETURN_IF_ERROR(ops::InferNode(graph_, graph_.node(id)));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == kNone) continue;
      if (IsIdentityOrder(order)) {
        TakePlace(graph_, outputs[i], moved.outputs[i]);
        continue;
      }
      const Type type = graph_.value(outputs[i]).type;
      const ValueId back = AddTyped(graph_, "Transpose", moved.name + "/back", {moved.outputs[i]},
                                    type, {{"perm", order}});
      graph_.node(graph_.value(back).producer).origin = moved.origin;
      TakePlace(graph_, outputs[i], back);
    }
    return absl::OkStatus();
  }

  Graph& graph_;
  const StepContext& context_;
};

}  // namespace

absl::StatusOr<Graph> SinkTransposes(Graph graph, const PassOptions& options,
                                     const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return SinkTransposes(std::move(body), options, context); }));
  const int64_t before = CountTransposes(graph);
  if (before < 2) return graph;
  Graph sunk = graph;
  QUENCH_RETURN_IF_ERROR(TransposeSinker(sunk, context).Run());
  QUENCH_ASSIGN_OR_RETURN(sunk, Settled(std::move(sunk)));
  return CountTransposes(sunk) < before ? std::move(sunk) : std::move(graph);
}

}  // namespace quench::passes
