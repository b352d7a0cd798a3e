// Looks up what is a function of one byte.
//   pre: types inferred, topological order
//   DQ(x) -> Sigmoid -> s; DQ(x), s -> Mul -> QuantizeLinear -> y     ==>   x, table[256] -> q.table -> y
//   x of i8 or u8; between x and y stand pointwise operations whose other operands are single
//   numbers, pairs of QuantizeLinear and DequantizeLinear among them. The interpreter fills the
//   table: bytes are the same on every target.
//   case: PointwiseTablesTest
#include <map>
#include <set>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "common/ops/pointwise.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr int64_t kBytes = 256;
constexpr size_t kMaxNodes =
    256;  // behind one table: what is longer than that is not an activation

class Tabulator {
 public:
  Tabulator(Graph& graph, const StepContext& context)
      : graph_(graph), context_(context), source_(graph.values.size(), kNone) {}

  absl::Status Run() {
    std::vector<std::pair<ValueId, ValueId>> replaced;  // at the end: tables look at the old nodes
    const size_t nodes = graph_.nodes.size();
    for (size_t i = 0; i < nodes; ++i) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      const Node node = graph_.nodes[i];  // adding nodes moves them
      const ValueId source = SourceOf(node);
      if (source == kNone) continue;
      source_[static_cast<size_t>(node.outputs[0])] = source;
      if (node.op != "QuantizeLinear" || !IsByte(node.outputs[0])) continue;
      QUENCH_ASSIGN_OR_RETURN(const ValueId y, LookedUp(static_cast<NodeId>(i), source));
      if (y != kNone) replaced.emplace_back(node.outputs[0], y);
    }
    for (const auto& [from, to] : replaced) TakePlace(graph_, from, to);
    return absl::OkStatus();
  }

 private:
  bool IsByte(ValueId id) const {
    const Type& type = graph_.value(id).type;
    return type.kind == ValueKind::kTensor && type.ranked &&
           (type.dtype == DataType::kI8 || type.dtype == DataType::kU8);
  }

  // The tensor of bytes whose elements alone decide those of the node's output; else none.
  ValueId SourceOf(const Node& node) const {
    if (!ops::IsPointwise(node) || node.outputs.size() != 1 || node.outputs[0] == kNone)
      return kNone;
    ValueId source = kNone;
    for (const ValueId id : node.inputs) {
      if (id == kNone) continue;
      if (const Tensor* constant = ConstantOf(graph_, id)) {
        if (constant->size() != 1) return kNone;
        continue;
      }
      ValueId each = source_[static_cast<size_t>(id)];
      if (each == kNone && IsByte(id)) each = id;
      if (each == kNone || (source != kNone && source != each)) return kNone;
      source = each;
    }
    if (source == kNone) return kNone;
    const Type& type = graph_.value(node.outputs[0]).type;
    const bool same = type.ranked && type.dims == graph_.value(source).type.dims;
    return same ? source : kNone;
  }

  // Nodes between a source and a value, in order; none if there are too many.
  std::set<NodeId> Between(ValueId source, ValueId value) const {
    std::set<NodeId> nodes;
    std::vector<ValueId> pending = {value};
    while (!pending.empty()) {
      const ValueId id = pending.back();
      pending.pop_back();
      const NodeId producer = id == source || id == kNone ? kNone : graph_.value(id).producer;
      if (producer == kNone || !nodes.insert(producer).second) continue;
      if (nodes.size() > kMaxNodes) return {};
      const std::vector<ValueId>& inputs = graph_.node(producer).inputs;
      pending.insert(pending.end(), inputs.begin(), inputs.end());
    }
    return nodes;
  }

  // The output of a table in place of the node; none where it stays as it is.
  absl::StatusOr<ValueId> LookedUp(NodeId place, ValueId source) {
    const Node node = graph_.node(place);  // adding nodes moves them
    const std::set<NodeId> nodes = Between(source, node.outputs[0]);
    if (nodes.empty() || !Evaluate(nodes, source).ok()) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      return kNone;
    }
    std::string origin;
    for (const NodeId id : nodes) {
      const std::string& each = graph_.node(id).origin;
      if (!each.empty()) origin += (origin.empty() ? "" : "+") + each;
    }
    const ValueId table = graph_.AddConstant(node.name + ".table", of_bytes_.at(node.outputs[0]));
    const NodeId id = graph_.AddNode("q.table", node.name, {source, table});
    graph_.node(id).origin = origin;
    std::swap(graph_.node(id).name, graph_.node(place).name);
    const ValueId y = graph_.node(id).outputs[0];
    graph_.value(y).type = graph_.value(node.outputs[0]).type;
    return y;
  }

  // Fills in what the nodes' outputs are for each byte of the source.
  absl::Status Evaluate(const std::set<NodeId>& nodes, ValueId source) {
    if (!of_bytes_.contains(source)) {
      Tensor bytes = Tensor::Zeros(graph_.value(source).type.dtype, {kBytes});
      for (int64_t i = 0; i < kBytes; ++i) bytes.mutable_bytes()[i] = static_cast<std::byte>(i);
      of_bytes_[source] = std::move(bytes);
    }
    for (const NodeId id : nodes) {
      const Node& node = graph_.node(id);
      if (of_bytes_.contains(node.outputs[0])) continue;
      std::vector<const Tensor*> operands;
      for (const ValueId input : node.inputs) {
        if (const Tensor* constant = ConstantOf(graph_, input))
          of_bytes_.try_emplace(input, constant->Reshaped({}));  // fits whatever rank
        operands.push_back(input == kNone ? nullptr : &of_bytes_.at(input));
      }
      QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> results,
                              ops::EvaluateNode(node, operands, context_));
      if (results[0].size() != kBytes)
        return InvalidArgument("node `{}` gives {} elements", node.name, results[0].size());
      of_bytes_[node.outputs[0]] = std::move(results[0]);
    }
    return absl::OkStatus();
  }

  Graph& graph_;
  const StepContext& context_;
  std::vector<ValueId> source_;  // per value: the bytes it is a function of, kNone where unknown
  std::map<ValueId, Tensor> of_bytes_;
};

}  // namespace

absl::StatusOr<Graph> PointwiseTables(Graph graph, const PassOptions& options,
                                      const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return PointwiseTables(std::move(body), options, context); }));
  QUENCH_RETURN_IF_ERROR(Tabulator(graph, context).Run());
  graph.Compact();
  return graph;
}

}  // namespace quench::passes
