// Moves what only moves elements above DequantizeLinear, so that it moves integers.
//   pre: types inferred, topological order
//   DQ(x) -> MaxPool -> y   ==>   x -> MaxPool -> DQ -> y, and so on down. Constants are moved at once.
//   DQ(w), ids -> Gather -> y   ==>   Gather(w), Gather(sw) -> DQ -> y, where w is large
//   case: sink_dequantize.ir.txt

#include <algorithm>
#include <optional>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/dequantized.h"
#include "common/passes/fold.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

// Operators that hand elements on as they are, for any element type.
bool OnlyMoves(const Node& node) {
  const ops::OpDef* op = ops::FindOp(node.op);
  if (op == nullptr || op->quant != ops::QuantRole::kPassThrough ||
      op->kind == ops::OpKind::kPointwise) {
    return false;
  }
  if (node.op == "MaxPool") return node.outputs.size() < 2 || node.outputs[1] == kNone;
  return node.op != "GlobalMaxPool" && node.op != "Pad" && node.op != "CenterCropPad" &&
         node.op != "Dropout";
}

class Sinker {
 public:
  Sinker(Graph& graph, const StepContext& context) : graph_(graph), context_(context) {}

  // DQ -> move  ==>  move -> DQ.
  absl::Status SinkBelow(NodeId place) {
    const Node node = graph_.node(place);  // adding nodes moves them
    const size_t data = node.op == "Concat" ? node.inputs.size() : 1;
    if (node.op == "Transpose" && SinkTransposed(node)) return absl::OkStatus();
    if (HasStoredTable(graph_, node)) {
      SinkGathered(place);
      return absl::OkStatus();
    }
    std::optional<Dequantized> common;
    Node moved = node;
    for (size_t i = 0; i < data; ++i) {
      const std::optional<Dequantized> each = ReadDequantized(graph_, node.inputs[i]);
      if (!each || (common && !common->SameAs(*each))) return absl::OkStatus();
      // The largest is the largest only while the scale is positive.
      if (node.op == "MaxPool" && !IsPositive(*each)) return absl::OkStatus();
      if (!common) common = each;
      moved.inputs[i] = each->integers;
    }
    const NodeId id = graph_.AddNode(moved.op, moved.name, moved.inputs,
                                     static_cast<int>(moved.outputs.size()), moved.attributes);
    graph_.node(id).origin = node.origin;
    // Sizes that only the run knows go by the name of the node that finds them out.
    std::swap(graph_.node(id).name, graph_.node(place).name);
    const std::vector<ValueId> outputs = graph_.node(id).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i] == kNone) {
        graph_.node(id).outputs[i] = kNone;
        continue;
      }
      Type type = graph_.value(node.outputs[i]).type;
      type.dtype = common->dtype;
      graph_.value(outputs[i]).type = type;
      type.dtype = DataType::kF32;
      std::vector<ValueId> operands = {outputs[i], common->scale_id};
      if (common->zero_id != kNone) operands.push_back(common->zero_id);
      graph_.ReplaceUses(node.outputs[i],
                         AddTyped(graph_, "DequantizeLinear", node.name + ".real", operands, type));
    }
    return FoldIfConstant(graph_, id, context_);
  }

  // A transposed kernel with a scale per channel: the channels' axis moves along.
  bool SinkTransposed(const Node& node) {
    const Node* dequantize = ProducerOf(graph_, node.inputs[0], "DequantizeLinear");
    if (dequantize == nullptr || ConstantOf(graph_, dequantize->inputs[0]) == nullptr) return false;
    const Tensor* scale = ConstantOf(graph_, dequantize->inputs[1]);
    if (scale == nullptr || scale->size() == 1) return false;
    if (ConstantOf(graph_, dequantize->inputs[0])->rank() == 2)
      return SinkTransposedMatrix(node, *dequantize);
    if (dequantize->Int("block_size", 0) != 0 ||
        DataTypeBits(ConstantOf(graph_, dequantize->inputs[0])->dtype()) < 8)
      return false;
    const Node old = *dequantize;
    const int rank = graph_.value(node.inputs[0]).type.rank();
    std::vector<int64_t> order = node.Ints("perm");
    for (int i = rank - 1; order.size() < static_cast<size_t>(rank); --i) order.push_back(i);
    const int64_t axis = old.Int("axis", 1) + (old.Int("axis", 1) < 0 ? rank : 0);
    const auto place = std::find(order.begin(), order.end(), axis) - order.begin();
    Type type = graph_.value(node.outputs[0]).type;
    type.dtype = graph_.value(old.inputs[0]).type.dtype;
    const ValueId moved =
        AddTyped(graph_, "Transpose", node.name, {old.inputs[0]}, type, node.attributes);
    type.dtype = DataType::kF32;
    std::vector<ValueId> operands = old.inputs;
    operands[0] = moved;
    std::map<std::string, Attribute> attributes = old.attributes;
    attributes["axis"] = static_cast<int64_t>(place);
    graph_.ReplaceUses(node.outputs[0], AddTyped(graph_, "DequantizeLinear", node.name + ".real",
                                                 operands, type, std::move(attributes)));
    return FoldIfConstant(graph_, graph_.value(moved).producer, context_).ok();
  }

 private:
  // For integers of any number of bits, in blocks or with a scale for each channel.
  bool SinkTransposedMatrix(const Node& node, const Node& dequantize) {
    const std::vector<int64_t> order = node.Ints("perm");
    if (!order.empty() && order[0] != 1) return false;
    const DataType type = ConstantOf(graph_, dequantize.inputs[0])->dtype();
    const int bits = DataTypeBits(type);
    if ((bits != 8 && bits != 4) || !IsInteger(type) ||
        ConstantOf(graph_, dequantize.inputs[1])->dtype() != DataType::kF32)
      return false;
    std::vector<ValueId> operands;
    for (const ValueId id : dequantize.inputs) {
      const Tensor* constant = ConstantOf(graph_, id);
      if (id != kNone && constant == nullptr) return false;
      if (id == kNone || constant->rank() != 2) {
        operands.push_back(id);
        continue;
      }
      Tensor transposed = TransposedMatrix(*constant);
      operands.push_back(graph_.AddConstant(node.name, std::move(transposed)));
    }
    std::map<std::string, Attribute> attributes = dequantize.attributes;
    attributes["axis"] = int64_t{1} - (dequantize.Int("axis", 1) + 2) % 2;
    const Type result = graph_.value(node.outputs[0]).type;
    graph_.ReplaceUses(node.outputs[0], AddTyped(graph_, "DequantizeLinear", node.name + ".real",
                                                 operands, result, std::move(attributes)));
    return true;
  }

  // Rows of a table are taken as integers, with their scales.
  void SinkGathered(NodeId place) {
    const Node node = graph_.node(place);  // adding nodes moves them
    const Node table = *ProducerOf(graph_, node.inputs[0], "DequantizeLinear");
    const std::vector<int64_t> dims = ConstantOf(graph_, table.inputs[0])->dims();
    const int64_t block = table.Int("block_size", 0);
    const auto rows_of = [&](const char* what, ValueId from) {
      Tensor rows = *ConstantOf(graph_, from);
      const bool shared = DataTypeBits(rows.dtype()) < 8;  // bytes: they can't be taken apart
      if (shared) rows = rows.Widened();
      if (rows.rank() == 1) rows = rows.Reshaped({dims[0], 1});
      if (shared || rows.dims() != ConstantOf(graph_, from)->dims())
        from = graph_.AddConstant(node.name + what, std::move(rows));
      const NodeId id = graph_.AddNode("Gather", node.name + what, {from, node.inputs[1]});
      graph_.node(id).origin = node.origin;
      return graph_.node(id).outputs[0];
    };
    std::vector<ValueId> operands = {rows_of(".q", table.inputs[0]),
                                     rows_of(".scale", table.inputs[1])};
    if (table.inputs.size() > 2 && table.inputs[2] != kNone)
      operands.push_back(rows_of(".zero", table.inputs[2]));
    const Type type = graph_.value(node.outputs[0]).type;
    const ValueId rows =
        AddTyped(graph_, "DequantizeLinear", node.name, std::move(operands), type,
                 {{"axis", int64_t{type.rank() - 1}}, {"block_size", block > 0 ? block : dims[1]}});
    graph_.node(graph_.value(rows).producer).origin = node.origin;
    graph_.ReplaceUses(node.outputs[0], rows);
  }

  bool IsPositive(const Dequantized& read) const {
    return read.known || ProducerOf(graph_, read.scale_id, "DynamicQuantizeLinear") != nullptr;
  }

  Graph& graph_;
  const StepContext& context_;
};

}  // namespace

absl::StatusOr<Graph> SinkDequantize(Graph graph, const PassOptions& options,
                                     const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return SinkDequantize(std::move(body), options, context); }));
  const size_t nodes = graph.nodes.size();
  for (size_t i = 0; i < nodes; ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    const Node& node = graph.nodes[i];
    if (OnlyMoves(node))
      QUENCH_RETURN_IF_ERROR(Sinker(graph, context).SinkBelow(static_cast<NodeId>(i)));
  }
  return Settled(std::move(graph));
}

}  // namespace quench::passes
