#include "services/quantizer/operands.h"

#include <algorithm>

#include "services/quantizer/parts.h"

namespace quench::quantizer {

int ChannelAxis(const Node& root, const Tensor& kernel) {
  if (root.op == "Conv") return 0;
  if (root.op == "ConvTranspose") return root.Int("group", 1) == 1 ? 1 : -1;
  if (root.op == "Gemm") return root.Int("transB", 0) != 0 ? 0 : 1;
  return kernel.rank() >= 2 ? kernel.rank() - 1 : -1;
}

std::optional<KernelLayout> LayoutOf(const Node& root, const Tensor& kernel) {
  const std::vector<int64_t>& dims = kernel.dims();
  if (kernel.size() == 0) return std::nullopt;
  if (root.op == "Conv") {
    const int64_t groups = root.Int("group", 1);
    return KernelLayout{dims[0], dims[1] * groups, groups, kernel.size() / dims[0] / dims[1],
                        false};
  }
  if (root.op != "Gemm" || root.Int("transA", 0) != 0 || root.Float("alpha", 1) != 1 ||
      root.Float("beta", 1) != 1)
    return std::nullopt;
  const bool inputs_first = root.Int("transB", 0) == 0;
  return KernelLayout{dims[inputs_first ? 1 : 0], dims[inputs_first ? 0 : 1], 1, 1, inputs_first};
}

std::pair<int64_t, std::function<int64_t(int64_t)>> OutputsOf(const Node& root,
                                                              const Tensor& kernel) {
  const std::vector<int64_t>& dims = kernel.dims();
  const auto size = [&](size_t axis) { return dims[axis]; };
  if (root.op == "Conv" || (root.op == "Gemm" && root.Int("transB", 0) != 0)) {
    const int64_t run = std::max<int64_t>(1, kernel.size() / std::max<int64_t>(1, size(0)));
    return {size(0), [run](int64_t i) { return i / run; }};
  }
  if (root.op == "ConvTranspose") {
    const int64_t group = root.Int("group", 1), outputs = size(1);
    const int64_t run = std::max<int64_t>(1, kernel.size() / std::max<int64_t>(1, size(0)));
    const int64_t spatial = std::max<int64_t>(1, run / std::max<int64_t>(1, outputs));
    const int64_t inputs_of_group = std::max<int64_t>(1, size(0) / group);
    return {outputs * group,
            [=](int64_t i) { return i / run / inputs_of_group * outputs + i % run / spatial; }};
  }
  if (kernel.rank() < 2) return {1, [](int64_t) { return int64_t{0}; }};
  const int64_t n = size(dims.size() - 1), k = size(dims.size() - 2);
  const int64_t matrix = std::max<int64_t>(1, k * n);
  return {kernel.size() / std::max<int64_t>(1, k),
          [=](int64_t i) { return i / matrix * n + i % n; }};
}

size_t OwnOperand(Node& node, int operand) {
  const auto place = static_cast<size_t>(OperandInput(node, operand));
  if (node.op != "q.fused") return place;
  Graph body = *node.Body("body");
  const ValueId inside = body.inputs[place];
  if (body.UseCounts()[static_cast<size_t>(inside)] < 2) return place;
  const std::string name = body.value(inside).name;
  const Type type = body.value(inside).type;
  body.nodes[0].inputs[static_cast<size_t>(operand)] = body.AddInput(name, type);
  node.attributes["body"] = std::make_shared<const Graph>(std::move(body));
  node.inputs.push_back(ValueId{node.inputs[place]});
  return node.inputs.size() - 1;
}

size_t AddBias(Graph& graph, NodeId id, int64_t channels) {
  const std::string name = graph.node(id).name + ".bias";
  const ValueId zeros = graph.AddConstant(name, Tensor::Zeros(DataType::kF32, {channels}));
  Node& node = graph.node(id);
  if (node.op != "q.fused") {
    node.inputs.resize(3, kNone);
    node.inputs[2] = zeros;
    return 2;
  }
  Graph body = *node.Body("body");
  const ValueId inside = body.AddInput(name, graph.value(zeros).type);
  body.nodes[0].inputs.resize(3, kNone);
  body.nodes[0].inputs[2] = inside;
  node.attributes["body"] = std::make_shared<const Graph>(std::move(body));
  node.inputs.push_back(zeros);
  return node.inputs.size() - 1;
}

}  // namespace quench::quantizer
