// Scales sums of products of integers straight to the steps of the integers that they become.
//   pre: types inferred, no dead nodes; products of integers as integer_products writes them
//   sums -> Cast(f32) -> Mul(s) -> Relu -> QuantizeLinear(sy)
//     ==>   sums -> Cast(f32) -> Mul(s / sy) -> Relu -> QuantizeLinear(1)
//   where all between the two is read once and commutes with a positive factor; other constants and
//   dequantized operands of it (biases, residuals, limits) are scaled along. Limits where the
//   integers end anyway go.
//   case: requantize.ir.txt
#include <optional>

#include "common/base/status.h"
#include "common/passes/dequantized.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

// Whether the node scales sums of products of integers by constants.
bool ScalesSums(const Graph& graph, const Node& node) {
  if (node.op != "Mul" || ConstantOf(graph, node.inputs[1]) == nullptr) return false;
  const Node* cast = ProducerOf(graph, node.inputs[0], "Cast");
  if (cast == nullptr || graph.value(cast->outputs[0]).type.dtype != DataType::kF32) return false;
  ValueId sums = cast->inputs[0];
  if (const Node* biased = ProducerOf(graph, sums, "Add")) sums = biased->inputs[0];
  return ProducerOf(graph, sums, "ConvInteger") != nullptr ||
         ProducerOf(graph, sums, "MatMulInteger") != nullptr;
}

class Requantizer {
 public:
  explicit Requantizer(Graph& graph) : graph_(graph) {}

  void Run() {
    std::vector<ValueId> products;
    readers_.assign(graph_.values.size(), {});
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (ScalesSums(graph_, node)) products.push_back(node.outputs[0]);
      for (const ValueId id : node.inputs) {
        if (id != kNone) readers_[static_cast<size_t>(id)].push_back(static_cast<NodeId>(i));
      }
    }
    for (const ValueId product : products) FoldScale(product);
  }

 private:
  // `product` is scaled straight to the steps of the integers that it becomes.
  void FoldScale(ValueId product) {
    std::vector<NodeId> between;
    ValueId at = product;
    const Node* last = nullptr;
    while (true) {
      const std::vector<NodeId>& readers = readers_[static_cast<size_t>(at)];
      if (graph_.IsOutput(at) || readers.size() != 1) return;
      last = &graph_.node(readers[0]);
      if (last->op == "QuantizeLinear" && last->inputs[0] == at) break;
      if (!Commutes(*last, at)) return;
      between.push_back(readers[0]);
      at = last->outputs[0];
    }
    const DataType dtype = graph_.value(last->outputs[0]).type.dtype;
    const std::optional<Dequantized> quantized = OneScale(graph_, *last, dtype);
    if (!quantized || quantized->scale == 1) return;
    const double factor = 1.0 / static_cast<double>(quantized->scale);
    const NodeId quantize = readers_[static_cast<size_t>(at)][0];
    const NodeId multiply = graph_.value(product).producer;
    const Tensor* scales = ConstantOf(graph_, graph_.node(multiply).inputs[1]);
    for (int64_t i = 0; i < scales->size(); ++i) {
      if (!IsNormal(scales->FloatAt(i) * factor)) return;
    }
    ScaleInput(multiply, 1, factor);
    for (const NodeId id : between) {
      for (size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
        if (Scales(graph_.node(id), i)) ScaleInput(id, i, factor);
      }
    }
    const ValueId one = graph_.AddConstant("one", Tensor::ScalarF32(1));
    graph_.node(quantize).inputs[1] = one;
    while (!between.empty() && SaturationDoes(graph_.node(between.back()), *quantized)) {
      graph_.node(quantize).inputs[0] = graph_.node(between.back()).inputs[0];
      between.pop_back();
    }
  }

  // Whether a limit in steps of the result lies where its integers end anyway.
  bool SaturationDoes(const Node& node, const Dequantized& quantized) const {
    const int64_t low = quantized.dtype == DataType::kI8 ? -128 : 0, high = low + 255;
    if (node.op == "Relu") return quantized.zero <= low;
    if (node.op != "Clip") return false;
    const auto limit = [&](size_t i, double otherwise) {
      const bool given = i < node.inputs.size() && node.inputs[i] != kNone;
      return given ? ConstantOf(graph_, node.inputs[i])->FloatAt(0) : otherwise;
    };
    // Above a half the nearest integer is beyond the last one, which saturates.
    const double first = static_cast<double>(low - quantized.zero);
    const double last = static_cast<double>(high - quantized.zero);
    return limit(1, first) < first + 0.5 && limit(2, last) > last - 0.5;
  }

  // f(c x) = c f(x) for c > 0, once the other operands are scaled too.
  bool Commutes(const Node& node, ValueId at) const {
    if (node.op == "Relu" || node.op == "LeakyRelu") return true;
    if (node.op == "PRelu") return node.inputs[0] == at && node.inputs[1] != at;
    if (node.op != "Add" && node.op != "Clip") return false;
    for (const ValueId id : node.inputs) {
      if (id == at || id == kNone) continue;
      const Tensor* constant = ConstantOf(graph_, id);
      const bool number = constant != nullptr && constant->dtype() == DataType::kF32;
      if (!number && (node.op == "Clip" || !ReadKnown(graph_, id))) return false;
    }
    return node.inputs[0] != node.inputs[1];
  }

  // Whether input i is one that Commutes wants scaled.
  bool Scales(const Node& node, size_t i) const {
    const ValueId id = node.inputs[i];
    if (id == kNone || (node.op != "Add" && node.op != "Clip")) return false;
    return ConstantOf(graph_, id) != nullptr || (node.op == "Add" && ReadKnown(graph_, id));
  }

  void ScaleInput(NodeId node, size_t i, double factor) {
    const ValueId id = graph_.node(node).inputs[i];
    const std::string name = graph_.value(id).name;  // adding values moves them
    ValueId scaled = kNone;
    if (const Tensor* constant = ConstantOf(graph_, id)) {
      Tensor result = Tensor::Zeros(DataType::kF32, constant->dims());
      auto* out = reinterpret_cast<float*>(result.mutable_bytes());
      for (int64_t k = 0; k < constant->size(); ++k)
        out[k] = static_cast<float>(constant->FloatAt(k) * factor);
      scaled = graph_.AddConstant(name, std::move(result));
    } else {
      const std::optional<Dequantized> read = ReadKnown(graph_, id);
      QUENCH_CHECK(read.has_value());  // Scales has seen it
      const std::string scale_name = graph_.value(read->scale_id).name;
      const ValueId scale = graph_.AddConstant(
          scale_name,
          Tensor::ScalarF32(static_cast<float>(static_cast<double>(read->scale) * factor)));
      std::vector<ValueId> operands = {read->integers, scale};
      if (read->zero_id != kNone) operands.push_back(read->zero_id);
      scaled = AddTyped(graph_, "DequantizeLinear", name, operands, graph_.value(id).type);
    }
    graph_.node(node).inputs[i] = scaled;
  }

  Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;  // per value
};

}  // namespace

absl::StatusOr<Graph> RequantizeDirectly(Graph graph, const PassOptions& options,
                                         const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return RequantizeDirectly(std::move(body), options, context); }));
  Requantizer(graph).Run();
  return Settled(std::move(graph));
}

}  // namespace quench::passes
