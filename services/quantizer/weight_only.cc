#include "services/quantizer/weight_only.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

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

bool HasWeights(const Graph& graph, const Node& node) {
  if (node.op == "Gather") return IsMatrix(graph, node.inputs[0]);
  return IsRecurrent(node.op) || IsAmong(node.op, {"MatMul", "Gemm", "Conv", "ConvTranspose"});
}

// The work in a module: its main graph and all bodies in it.
struct ModuleWork {
  explicit ModuleWork(const Graph& graph) {
    ForEachGraph(graph, [&](const Graph& each) {
      for (const Node& node : each.nodes) {
        names.insert(node.name);
        if (HasWeights(each, node)) ++layers[node.origin];
      }
    });
  }
  // By what users know a layer: its name in the model, where no other came from there too.
  std::string NameOf(const Node& node) const {
    return !node.origin.empty() && layers.at(node.origin) == 1 ? node.origin : node.name;
  }
  std::string FreshName(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; !names.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
    return name;
  }

  std::set<std::string> names;        // of nodes
  std::map<std::string, int> layers;  // by origin
  QuantizeReport report;
};

// A graph of the module. Constants belong to graphs: what two of them share is quantized in each.
class WeightQuantizer {
 public:
  WeightQuantizer(Graph graph, bool is_body, const QuantizeOptions& options, ModuleWork& work,
                  const StepContext& context)
      : graph_(std::move(graph)),
        is_body_(is_body),
        options_(options),
        work_(work),
        context_(context) {}

  // `around` is what options say of the node that this is a body of.
  absl::StatusOr<Graph> Run(Naming around = {}) {
    const size_t nodes = graph_.nodes.size();  // what is added stands behind them
    for (size_t i = 0; i < nodes; ++i) {
      QUENCH_RETURN_IF_ERROR(context_.Check());
      const Node& node = graph_.nodes[i];
      if (!is_body_) {
        context_.Report(
            {"quantize", node.name, static_cast<int64_t>(i), static_cast<int64_t>(nodes)});
      }
      const Naming naming = NamingOf(node, options_, around);
      QUENCH_RETURN_IF_ERROR(QuantizeBodies(i, naming));
      if (HasWeights(graph_, node)) QUENCH_RETURN_IF_ERROR(QuantizeLayer(i, naming));
    }
    graph_.Compact();
    return std::move(graph_);
  }

 private:
  absl::Status QuantizeBodies(size_t place, Naming naming) {
    for (auto& [name, attribute] : graph_.nodes[place].attributes) {
      GraphPtr* const body = std::get_if<GraphPtr>(&attribute);
      if (body == nullptr) continue;
      absl::StatusOr<Graph> quantized =
          WeightQuantizer(**body, true, options_, work_, context_).Run(naming);
      if (!quantized.ok()) return quantized.status();  // names its node
      *body = std::make_shared<const Graph>(*std::move(quantized));
    }
    return absl::OkStatus();
  }

  absl::Status QuantizeLayer(size_t place, Naming naming) {
    const Node& node = graph_.nodes[place];
    LayerChoice choice{work_.NameOf(node), node.op, true, ""};
    choice.reason = IsSelected(naming, options_) ? WhyWeightsStayFloat(graph_, node) : "excluded";
    choice.quantized = choice.reason.empty();
    if (choice.quantized) {
      QUENCH_RETURN_IF_ERROR(IsRecurrent(node.op) ? QuantizeRecurrent(place)
                                                  : QuantizeWeightsOf(place));
    }
    work_.report.layers.push_back(std::move(choice));
    return absl::OkStatus();
  }

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
    // Rounding is adapted to constants of the main graph: only their readers have taps.
    const std::string* otherwise = is_body_ ? nullptr : OtherwiseOf(options_, name, scheme.axis);
    if (otherwise != nullptr) {
      RoundOtherwise(weights, scheme, *otherwise, *quantized);
      ++work_.report.adapted_kernels;
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
    ++work_.report.weights;
    const NodeId made = graph_.AddNode("DequantizeLinear", work_.FreshName(name + ".real"),
                                       std::move(inputs), 1, attributes);
    return graph_.node(made).outputs[0];
  }

  Graph graph_;
  const bool is_body_;
  const QuantizeOptions& options_;
  ModuleWork& work_;
  const StepContext& context_;
  std::map<std::pair<ValueId, int>, ValueId> made_;  // by constant and axis of its blocks
};

}  // namespace

std::string WhyWeightsStayFloat(const Graph& graph, const Node& node) {
  if (IsRecurrent(node.op)) return WhyRecurrentStaysFloat(graph, node);
  if (node.op == "Conv" || node.op == "ConvTranspose")
    return "activations stay in float, and so do kernels of convolutions";
  const ValueId id = node.inputs[WeightsInput(node)];
  if (graph.value(id).constant == nullptr) return "its weights are computed while running";
  if (!IsMatrix(graph, id)) return "its weights are not an f32 matrix";
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
  QUENCH_RETURN_IF_ERROR(CheckPatterns(graph, options, /*bodies=*/true));
  ModuleWork work(graph);
  QUENCH_ASSIGN_OR_RETURN(Graph quantized,
                          WeightQuantizer(std::move(graph), false, options, work, context).Run());
  QuantizeReport& report = work.report;
  if (report.adapted_kernels > 0 && options.rounding->random)
    report.warnings.emplace_back(kRandomRounding);
  if (report.weights == 0) report.warnings.emplace_back("nothing was quantized");
  MarkQuantized(quantized);
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(quantized));
  return QuantizedModule{std::move(quantized), std::move(report)};
}

}  // namespace quench::quantizer
