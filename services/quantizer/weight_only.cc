#include "services/quantizer/weight_only.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/quantizer/constants.h"
#include "services/quantizer/parts.h"

namespace quench::quantizer {
namespace {

constexpr int64_t kFewWeights = 4096;  // what smaller matrices save is not worth their error
constexpr int64_t kDefaultBlock = 32;  // of four bits

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
      if (!IsAmong(node.op, {"MatMul", "Gemm", "Gather", "Conv", "ConvTranspose"})) continue;
      if (node.op == "Gather" && !IsTable(node.inputs[0])) continue;
      LayerChoice choice{node.origin.empty() ? node.name : node.origin, node.op, true, ""};
      choice.reason = selected[i] ? WhyFloat(node) : "excluded";
      choice.quantized = choice.reason.empty();
      context_.Report(
          {"quantize", node.name, static_cast<int64_t>(i), static_cast<int64_t>(nodes)});
      if (choice.quantized) QUENCH_RETURN_IF_ERROR(QuantizeWeightsOf(i));
      report_.layers.push_back(std::move(choice));
    }
    if (report_.weights == 0) report_.warnings.emplace_back("nothing was quantized");
    graph_.Compact();
    MarkQuantized(graph_);
    QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph_));
    return QuantizedModule{std::move(graph_), std::move(report_)};
  }

 private:
  bool IsTable(ValueId id) const {
    const auto& constant = graph_.value(id).constant;
    return constant != nullptr && constant->tensor.dtype() == DataType::kF32 &&
           constant->tensor.rank() == 2;
  }

  static bool AllFinite(const Tensor& tensor) {
    const std::span<const float> values = tensor.as<float>();
    return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  }

  static size_t WeightsInput(const Node& node) { return node.op == "Gather" ? 0 : 1; }

  std::string WhyFloat(const Node& node) const {
    if (node.op == "Conv" || node.op == "ConvTranspose")
      return "activations stay in float, and so do kernels of convolutions";
    const ValueId id = node.inputs[WeightsInput(node)];
    if (graph_.value(id).constant == nullptr) return "its weights are computed while running";
    if (!IsTable(id)) return "its weights are no f32 matrix";
    if (node.Int("transA", 0) != 0) return "its left side is transposed";
    if (node.op == "Gather" && node.Int("axis", 0) != 0) return "it takes columns of its table";
    const int64_t size = graph_.value(id).constant->tensor.size();
    if (size < kFewWeights) return fmt::format("it has only {} weights", size);
    if (node.op == "Gather" && !AllFinite(graph_.value(id).constant->tensor))
      return "its table has NaN or infinite numbers";
    return "";
  }

  // The axis that is summed over; of a table, the one within a row.
  static int BlockAxis(const Node& node) {
    return node.op == "Gather" || node.Int("transB", 0) != 0 ? 1 : 0;
  }

  absl::Status QuantizeWeightsOf(size_t place) {
    const Node node = graph_.nodes[place];
    const size_t input = WeightsInput(node);
    const ValueId id = node.inputs[input];
    const int axis = BlockAxis(node);
    const auto [known, fresh] = made_.emplace(std::pair(id, axis), kNone);
    if (fresh) {
      QUENCH_ASSIGN_OR_RETURN(known->second, Dequantized(node, id, axis));
    }
    graph_.nodes[place].inputs[input] = known->second;
    return absl::OkStatus();
  }

  bool IsOfProduct(ValueId weights) const {
    return std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
      return (node.op == "MatMul" || node.op == "Gemm") && node.inputs[1] == weights;
    });
  }

  absl::StatusOr<ValueId> Dequantized(const Node& node, ValueId id, int axis) {
    const Tensor weights = graph_.value(id).constant->tensor;
    const std::string name = graph_.value(id).name;
    Scheme scheme{options_.kernel_dtype, true, options_.power_of_two};
    if (scheme.dtype == DataType::kUndefined) scheme.dtype = options_.activation_dtype;
    if (node.op == "Gather" && DataTypeBits(scheme.dtype) < 8 && !IsOfProduct(id)) {
      // Rows are taken byte by byte: four bits would save nothing.
      scheme.dtype = IsSigned(scheme.dtype) ? DataType::kI8 : DataType::kU8;
    }
    const int64_t length = weights.dims()[static_cast<size_t>(axis)];
    const bool in_blocks = DataTypeBits(scheme.dtype) == 4 && !options_.per_channel;
    const int64_t wanted = options_.block_size.value_or(in_blocks ? kDefaultBlock : 0);
    const bool blocks = wanted > 0 && wanted < length;
    absl::StatusOr<QuantizedConstant> quantized = QuantizeBlocks(
        weights, axis, blocks ? wanted : length, scheme, options_.method == "mse", context_);
    if (!quantized.ok())
      return Annotate(quantized.status(), fmt::format("node `{}`: weights", node.name));
    std::map<std::string, Attribute> attributes = {{"axis", static_cast<int64_t>(1 - axis)}};
    if (blocks) {
      attributes = {{"axis", static_cast<int64_t>(axis)}, {"block_size", wanted}};
    } else {
      quantized->scale = quantized->scale.Reshaped({quantized->scale.size()});
      quantized->zero_point = quantized->zero_point.Reshaped({quantized->zero_point.size()});
    }
    std::vector<ValueId> inputs = {graph_.AddConstant(name + ".q", quantized->integers),
                                   graph_.AddConstant(name + ".scale", quantized->scale)};
    if (!IsSigned(scheme.dtype))
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

absl::StatusOr<QuantizedModule> QuantizeWeightsOnly(Graph graph, const QuantizeOptions& options,
                                                    const StepContext& context) {
  return WeightQuantizer(std::move(graph), options, context).Run();
}

}  // namespace quench::quantizer
