// Rewrites that let more of a model go to backends with narrower operators. Values stay the same.
#include <fmt/format.h>

#include <algorithm>

#include "services/analyser/partition.h"

namespace quench::analyser {
namespace {

class PartitionSimplifier {
 public:
  explicit PartitionSimplifier(Graph graph) : graph_(std::move(graph)) {}

  std::pair<Graph, int64_t> Run(const PartitionOptions& options) {
    const size_t count = graph_.nodes.size();
    for (size_t i = 0; i < count; ++i) {
      // Copied: nodes are appended meanwhile.
      const Node node = graph_.nodes[i];
      bool changed = false;
      if (options.simplify_scalar_add && node.op == "Add") changed = SpreadNumber(i, node);
      if (options.simplify_batch_matmul && node.op == "MatMul") changed = DropBatch(i, node);
      if (options.remove_stacks && node.op == "Concat") changed = RemoveStack(i, node);
      changed_ += changed ? 1 : 0;
    }
    graph_.Compact();
    return {std::move(graph_), changed_};
  }

 private:
  const Tensor* ConstantOf(ValueId id) const {
    if (id == kNone || graph_.value(id).constant == nullptr) return nullptr;
    return &graph_.value(id).constant->tensor;
  }

  // x + 2  ==>  x + [2, 2, ...]
  bool SpreadNumber(size_t i, const Node& node) {
    for (size_t side = 0; side < 2; ++side) {
      const Tensor* number = ConstantOf(node.inputs[side]);
      const Type& type = graph_.value(node.inputs[1 - side]).type;
      constexpr int64_t kMostElements = int64_t{1} << 24;
      if (number == nullptr || number->size() != 1 || !type.is_static() || type.rank() == 0)
        continue;
      std::vector<int64_t> dims;
      int64_t size = 1;
      for (const Dim dim : type.dims) {
        dims.push_back(dim.value());
        if (dim.value() != 0 && size > kMostElements / std::max<int64_t>(dim.value(), 1))
          return false;
        size *= dim.value();
      }
      if (number->dims() == dims) continue;
      Tensor spread = Tensor::Zeros(number->dtype(), dims);
      const auto one = number->bytes();
      for (size_t at = 0; at + one.size() <= spread.bytes().size(); at += one.size())
        std::copy(one.begin(), one.end(), spread.mutable_bytes() + at);
      if (spread.bytes().size() != one.size() * static_cast<size_t>(size)) return false;
      graph_.nodes[i].inputs[side] =
          graph_.AddConstant(graph_.value(node.inputs[side]).name + ".spread", std::move(spread));
      return true;
    }
    return false;
  }

  // x [b, m, k] times w [1, k, n], or [b, k, n] of b equal matrices  ==>  times w [k, n]
  bool DropBatch(size_t i, const Node& node) {
    const Tensor* weights = ConstantOf(node.inputs[1]);
    if (weights == nullptr || weights->rank() < 3 || weights->size() == 0) return false;
    const std::vector<int64_t>& dims = weights->dims();
    const Type& data = graph_.value(node.inputs[0]).type;
    if (data.rank() < static_cast<int>(dims.size())) return false;
    const size_t extra = static_cast<size_t>(data.rank()) - dims.size();
    int64_t matrices = 1;
    for (size_t axis = 0; axis + 2 < dims.size(); ++axis) {
      if (dims[axis] != 1 && !data.dims[extra + axis].is(dims[axis])) return false;
      matrices *= dims[axis];
    }
    const auto bytes = weights->bytes();
    const size_t one = bytes.size() / static_cast<size_t>(matrices);
    if (!std::equal(bytes.begin() + one, bytes.end(), bytes.begin())) return false;
    const std::vector<int64_t> flat(dims.end() - 2, dims.end());
    Tensor matrix = Tensor::Zeros(weights->dtype(), flat);
    std::copy(bytes.begin(), bytes.begin() + one, matrix.mutable_bytes());
    graph_.nodes[i].inputs[1] =
        graph_.AddConstant(graph_.value(node.inputs[1]).name + ".matrix", std::move(matrix));
    return true;
  }

  // Concat(Unsqueeze(x, a), Unsqueeze(y, a), axis a)  ==>  Reshape(Concat(x, y, axis a))
  bool RemoveStack(size_t i, const Node& node) {
    const Type& type = graph_.value(node.outputs[0]).type;
    if (!type.is_static()) return false;
    int64_t axis = node.Int("axis", 0);
    if (axis < 0) axis += type.rank();
    if (axis + 1 >= type.rank()) return false;  // a new last axis is not a reshape of a Concat
    std::vector<ValueId> operands;
    for (const ValueId id : node.inputs) {
      const NodeId producer = id == kNone ? kNone : graph_.value(id).producer;
      if (producer == kNone || graph_.node(producer).op != "Unsqueeze") return false;
      const Node& unsqueeze = graph_.node(producer);
      const Tensor* axes = ConstantOf(unsqueeze.inputs.size() > 1 ? unsqueeze.inputs[1] : kNone);
      if (axes == nullptr || axes->size() != 1) return false;
      const int64_t at = axes->IntAt(0) < 0 ? axes->IntAt(0) + type.rank() : axes->IntAt(0);
      if (at != axis) return false;
      operands.push_back(unsqueeze.inputs[0]);
    }
    if (operands.size() < 2) return false;
    std::vector<int64_t> dims;
    for (const Dim dim : type.dims) dims.push_back(dim.value());
    const ValueId shape = graph_.AddConstant(node.name + ".shape", Tensor::I64(dims));
    const NodeId concat =
        graph_.AddNode("Concat", node.name + ".joined", operands, 1, {{"axis", axis}});
    graph_.node(concat).origin = node.origin;
    Node& reshape = graph_.nodes[i];
    reshape.op = "Reshape";
    reshape.attributes.clear();
    reshape.inputs = {graph_.node(concat).outputs[0], shape};
    return true;
  }

  Graph graph_;
  int64_t changed_ = 0;
};

}  // namespace

std::pair<Graph, int64_t> SimplifyForPartition(Graph graph, const PartitionOptions& options) {
  return PartitionSimplifier(std::move(graph)).Run(options);
}

}  // namespace quench::analyser
