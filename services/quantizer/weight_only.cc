#include "services/quantizer/weight_only.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/quantizer/constants.h"
#include "services/quantizer/parts.h"
#include "services/quantizer/rounding.h"
#include "services/quantizer/weights.h"

namespace quench::quantizer {
namespace {

constexpr int64_t kFewWeights = 4096;  // what smaller matrices save is not worth their error

bool IsMatrix(const Graph& graph, ValueId id) {
  const auto& constant = graph.value(id).constant;
  return constant != nullptr && constant->tensor.dtype() == DataType::kF32 &&
         constant->tensor.rank() == 2;
}

bool AllFinite(const Tensor& tensor) {
  const std::span<const float> values = tensor.as<float>();
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

size_t WeightsInput(const Node& node) { return node.op == "Gather" ? 0 : 1; }

class WeightQuantizer {
 public:
  WeightQuantizer(Graph graph, const QuantizeOptions& options, const StepContext& context)
      : graph_(std::move(graph)), options_(options), context_(context) {}

  absl::StatusOr<QuantizedModule> Run() {
    QUENCH_ASSIGN_OR_RETURN(const std::vector<bool> selected, SelectedNodes(graph_, options_));
    const size_t nodes = graph_.nodes.size();  // what is added stands behind them
    for (size_t i = 0; i < nodes; ++i) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      const Node node = graph_.nodes[i];
      if (!IsAmong(node.op, {"MatMul", "Gemm", "Gather", "Conv", "ConvTranspose"}) &&
          !IsRecurrent(node.op))
        continue;
      if (node.op == "Gather" && !IsMatrix(graph_, node.inputs[0])) continue;
      LayerChoice choice{node.origin.empty() ? node.name : node.origin, node.op, true, ""};
      choice.reason = selected[i] ? WhyWeightsStayFloat(graph_, node) : "excluded";
      choice.quantized = choice.reason.empty();
      context_.Report(
          {"quantize", node.name, static_cast<int64_t>(i), static_cast<int64_t>(nodes)});
      if (choice.quantized)
        QUENCH_RETURN_IF_ERROR(IsRecurrent(node.op) ? QuantizeRecurrent(i) : QuantizeWeightsOf(i));
      report_.layers.push_back(std::move(choice));
    }
    if (report_.adapted_kernels > 0 && options_.rounding->random)
      report_.warnings.emplace_back(kRandomRounding);
    if (report_.weights == 0) report_.warnings.emplace_back("nothing was quantized");
    graph_.Compact();
    MarkQuantized(graph_);
    QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph_));
    return QuantizedModule{std::move(graph_), std::move(report_)};
  }

 private:
  absl::Status QuantizeRecurrent(size_t place) {
    const Node node = graph_.nodes[place];
    const WeightScheme scheme = SchemeOfRecurrent(options_);
    for (const size_t input : {1U, 2U}) {
      const auto [known, fresh] = made_.emplace(std::pair(node.inputs[input], -1), kNone);
      if (fresh) {
        QUENCH_ASSIGN_OR_RETURN(known->second, Dequantized(node, node.inputs[input], scheme));
      }
      graph_.nodes[place].inputs[input] = known->second;
    }
    return absl::OkStatus();
  }

  absl::Status QuantizeWeightsOf(size_t place) {
    const Node node = graph_.nodes[place];
    const size_t input = WeightsInput(node);
    const ValueId id = node.inputs[input];
    const Tensor& weights = graph_.value(id).constant->tensor;
    // Rows are taken byte by byte: four bits would save nothing.
    const bool bytes = node.op == "Gather" && !IsOfProduct(id);
    const WeightScheme scheme = SchemeOfMatrix(node, weights, bytes, options_);
    const auto [known, fresh] = made_.emplace(std::pair(id, scheme.axis), kNone);
    if (fresh) {
      QUENCH_ASSIGN_OR_RETURN(known->second, Dequantized(node, id, scheme));
    }
    graph_.nodes[place].inputs[input] = known->second;
    return absl::OkStatus();
  }

  bool IsOfProduct(ValueId weights) const {
    return std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
      return (node.op == "MatMul" || node.op == "Gemm") && node.inputs[1] == weights;
    });
  }

  absl::StatusOr<ValueId> Dequantized(const Node& node, ValueId id, const WeightScheme& scheme) {
    const Tensor weights = graph_.value(id).constant->tensor;
    const std::string name = graph_.value(id).name;
    absl::StatusOr<QuantizedConstant> quantized = ToIntegers(weights, scheme, context_);
    if (!quantized.ok())
      return Annotate(quantized.status(), fmt::format("node `{}`: weights", node.name));
    if (const std::string* otherwise = OtherwiseOf(options_, name, scheme.axis)) {
      RoundOtherwise(weights, scheme, *otherwise, *quantized);
      ++report_.adapted_kernels;
    }
    const auto axis = static_cast<int64_t>(scheme.axis);
    std::map<std::string, Attribute> attributes = {{"axis", scheme.block == 0 ? axis : 1 - axis}};
    if (scheme.block > 0 && scheme.block < weights.dims()[static_cast<size_t>(axis)]) {
      attributes = {{"axis", axis}, {"block_size", scheme.block}};
    } else {
      quantized->scale = quantized->scale.Reshaped({quantized->scale.size()});
      quantized->zero_point = quantized->zero_point.Reshaped({quantized->zero_point.size()});
    }
    std::vector<ValueId> inputs = {graph_.AddConstant(name + ".q", quantized->integers),
                                   graph_.AddConstant(name + ".scale", quantized->scale)};
    if (!IsSigned(scheme.scheme.dtype))
      inputs.push_back(graph_.AddConstant(name + ".zero_point", quantized->zero_point));
    ++report_.weights;
    const NodeId made =
        graph_.AddNode("DequantizeLinear", name + ".real", std::move(inputs), 1, attributes);
    return graph_.node(made).outputs[0];
  }

  Graph graph_;
  const QuantizeOptions& options_;
  const StepContext& context_;
  std::map<std::pair<ValueId, int>, ValueId> made_;  // by constant and axis of its blocks
  QuantizeReport report_;
};

}  // namespace

std::string WhyWeightsStayFloat(const Graph& graph, const Node& node) {
  if (IsRecurrent(node.op)) return WhyRecurrentStaysFloat(graph, node);
  if (node.op == "Conv" || node.op == "ConvTranspose")
    return "activations stay in float, and so do kernels of convolutions";
  const ValueId id = node.inputs[WeightsInput(node)];
  if (graph.value(id).constant == nullptr) return "its weights are computed while running";
  if (!IsMatrix(graph, id)) return "its weights are no f32 matrix";
  if (node.Int("transA", 0) != 0) return "its left side is transposed";
  if (node.op == "Gather" && node.Int("axis", 0) != 0) return "it takes columns of its table";
  const int64_t size = graph.value(id).constant->tensor.size();
  if (size < kFewWeights) return fmt::format("it has only {} weights", size);
  if (node.op == "Gather" && !AllFinite(graph.value(id).constant->tensor))
    return "its table has NaN or infinite numbers";
  return "";
}

absl::StatusOr<QuantizedModule> QuantizeWeightsOnly(Graph graph, const QuantizeOptions& options,
                                                    const StepContext& context) {
  return WeightQuantizer(std::move(graph), options, context).Run();
}

}  // namespace quench::quantizer
