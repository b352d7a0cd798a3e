#include "services/quantizer/quantize.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ir/metadata.h"
#include "common/ops/op.h"
#include "common/passes/passes.h"
#include "services/quantizer/constants.h"
#include "services/quantizer/methods/method.h"
#include "services/quantizer/operands.h"
#include "services/quantizer/parts.h"
#include "services/quantizer/rounding.h"
#include "services/quantizer/switches.h"
#include "services/quantizer/weight_only.h"
#include "services/quantizer/weights.h"

namespace quench::quantizer {
namespace {

class Quantizer {
 public:
  Quantizer(Graph fused, std::string fingerprint, const Statistics* statistics,
            const QuantizeOptions& options, const StepContext& context)
      : graph_(std::move(fused)),
        fingerprint_(std::move(fingerprint)),
        statistics_(statistics),
        options_(options),
        method_(*FindMethod(options.method)),
        context_(context) {}

  absl::StatusOr<QuantizedModule> Run() {
    QUENCH_ASSIGN_OR_RETURN(Plan plan, PlanParts(graph_, statistics_, options_));
    parts_ = std::move(plan.parts);
    wanted_ = std::move(plan.wanted);
    report_.layers = std::move(plan.layers);
    QUENCH_RETURN_IF_ERROR(CheckStatistics());
    ShareScales();
    QuantizationPoints points{
        parts_, graph_.nodes, {}, [this](ValueId id) { return StatisticsOf(id) != nullptr; }};
    QUENCH_RETURN_IF_ERROR(QuantizeWeights());
    points.real = QuantizeValues();
    if (options_.switches) {
      if (std::find(parts_.begin(), parts_.end(), Part::kCompute) == parts_.end())
        return absl::FailedPreconditionError("no layer can be quantized, so none can be switched");
      if (graph_.FindValue(std::string(kSwitchesInput))) {
        return InvalidArgument("the module has a value `{}` already, the name of the switches",
                               kSwitchesInput);
      }
      AddSwitches(graph_, points, fingerprint_);
    } else {
      ReadIntegers(graph_, points);
    }
    Warn();
    graph_.Compact();
    QUENCH_ASSIGN_OR_RETURN(
        graph_, passes::InlineGroups(std::move(graph_), [](const Node&) { return true; }));
    graph_.Compact();
    MarkQuantized(graph_);
    if (report_.static_values > 0) graph_.metadata[kCalibratedKey] = "true";
    QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph_));
    return QuantizedModule{std::move(graph_), std::move(report_)};
  }

 private:
  Scheme scheme() const {
    return {options_.activation_dtype, options_.symmetric, options_.power_of_two};
  }
  const TensorStatistics* StatisticsOf(ValueId id) const {
    return quantizer::StatisticsOf(graph_, id, statistics_, options_);
  }

  absl::Status CheckStatistics() const {
    if (options_.source != RangeSource::kStatic) return absl::OkStatus();
    std::vector<std::string> missing;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (wanted_[i] && StatisticsOf(static_cast<ValueId>(i)) == nullptr)
        missing.push_back("`" + graph_.values[i].name + "`");
    }
    if (missing.empty()) return absl::OkStatus();
    if (statistics_ == nullptr) {
      return absl::FailedPreconditionError(
          "static quantization needs statistics: calibrate first, or use dynamic ranges");
    }
    return absl::FailedPreconditionError(fmt::format(
        "static quantization needs statistics of {} values that calibration has not seen: {}",
        missing.size(), fmt::join(missing, ", ")));
  }

  // Representative of the values that share one scale; `id` is among those that there were at
  // first.
  ValueId Representative(ValueId id) {
    ValueId& parent = parent_[static_cast<size_t>(id)];
    return parent == id ? id : parent = Representative(parent);
  }

  // An operator that only moves values has one scale before and after; so have all values that are
  // joined.
  void ShareScales() {
    for (size_t i = 0; i < graph_.values.size(); ++i) parent_.push_back(static_cast<ValueId>(i));
    std::vector<bool> moved(graph_.values.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (parts_[i] != Part::kMoves || !IsWanted(graph_.nodes[i])) continue;
      const Node& node = graph_.nodes[i];
      const ValueId first = node.inputs[0];
      for (const int input : DataInputs(node)) Join(first, node.inputs[static_cast<size_t>(input)]);
      for (const ValueId id : node.outputs) {
        if (id == kNone) continue;
        Join(first, id);
        moved[static_cast<size_t>(id)] = OnlyMoves(node);
      }
    }
    std::map<ValueId, Range> ranges;
    for (const bool sources : {true, false}) {
      for (size_t i = 0; i < graph_.values.size(); ++i) {
        const auto id = static_cast<ValueId>(i);
        if (!wanted_[i] || moved[i] == sources || StatisticsOf(id) == nullptr) continue;
        const ValueId root = Representative(id);
        const Range range = method_->choose(*StatisticsOf(id), {options_.percentile, scheme()});
        const auto [known, fresh] = ranges.emplace(root, range);
        if (fresh || !sources) continue;  // moved values say nothing that their source has not said
        known->second = {std::min(known->second.low, range.low),
                         std::max(known->second.high, range.high)};
      }
    }
    for (const auto& [root, range] : ranges) affines_[root] = AffineFor(range, scheme());
  }

  // Whether what a node gives is to be integers; else it is nobody's business what scale it has.
  bool IsWanted(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return id != kNone && wanted_[static_cast<size_t>(id)]; });
  }

  // Whether all that comes out was in values with ranges: a constant that is joined to them, or
  // that fills up, was not.
  bool OnlyMoves(const Node& node) const {
    if (RootOf(node).op == "Pad" && node.inputs.size() > 2 && node.inputs[2] != kNone) return false;
    const std::vector<int> inputs = DataInputs(node);
    return std::all_of(inputs.begin(), inputs.end(), [&](int input) {
      const ValueId id = node.inputs[static_cast<size_t>(input)];
      return IsActivation(graph_, id) && StatisticsOf(id) != nullptr;
    });
  }

  // The scale of a value whose range is fixed, else null.
  const Affine* AffineOf(ValueId id) {
    const auto found = affines_.find(Representative(id));
    return found == affines_.end() || StatisticsOf(id) == nullptr ? nullptr : &found->second;
  }

  void Join(ValueId a, ValueId b) {
    if (!IsActivation(graph_, a) || !IsActivation(graph_, b)) return;
    parent_[static_cast<size_t>(Representative(b))] = Representative(a);
  }

  ValueId Dequantize(const std::string& name, ValueId integers, ValueId scale, ValueId zero_point,
                     int axis) {
    std::map<std::string, Attribute> attributes;
    if (axis >= 0) attributes["axis"] = int64_t{axis};
    const NodeId node = graph_.AddNode("DequantizeLinear", name, {integers, scale, zero_point}, 1,
                                       std::move(attributes));
    return graph_.node(node).outputs[0];
  }

  ValueId AddConstant(const std::string& name, const QuantizedConstant& constant, int axis) {
    // First: adding a constant moves the values, and `name` may be one's.
    const std::string real = name + ".real", scale_name = name + ".scale";
    const std::string zero_name = name + ".zero_point";
    const ValueId integers = graph_.AddConstant(name + ".q", constant.integers);
    const ValueId scale = graph_.AddConstant(scale_name, constant.scale);
    const ValueId zero = graph_.AddConstant(zero_name, constant.zero_point);
    ++report_.weights;
    return Dequantize(real, integers, scale, zero, axis);
  }

  absl::Status QuantizeWeights() {
    StatusCollector problems;
    const size_t nodes = graph_.nodes.size();  // what is added stands behind them
    for (size_t i = 0; i < nodes; ++i) {
      if (parts_[i] != Part::kCompute) continue;
      QUENCH_RETURN_IF_ERROR(context_.Check());
      context_.Report(
          {"quantize", graph_.nodes[i].name, static_cast<int64_t>(i), static_cast<int64_t>(nodes)});
      problems.Add(QuantizeOperands(i));
    }
    return problems.Finish();
  }

  // W and R of a recurrent layer: codegen reads them as integers and computes in float.
  absl::Status QuantizeRecurrent(size_t i) {
    for (const size_t input : {1U, 2U}) {
      const ValueId id = graph_.nodes[i].inputs[input];
      const WeightScheme scheme = SchemeOfRecurrent(options_);
      const auto quantized = ToIntegers(graph_.value(id).constant->tensor, scheme);
      if (!quantized.ok()) {
        return Annotate(quantized.status(),
                        fmt::format("node `{}`: weights", graph_.nodes[i].name));
      }
      const auto [known, fresh] = kernels_.emplace(std::pair(id, scheme.axis), kNone);
      if (fresh) known->second = AddConstant(graph_.value(id).name, *quantized, scheme.axis);
      graph_.nodes[i].inputs[input] = known->second;
    }
    return absl::OkStatus();
  }

  absl::Status QuantizeOperands(size_t i) {
    const Node root = RootOf(graph_.nodes[i]);
    if (IsRecurrent(root.op)) return QuantizeRecurrent(i);
    const auto where = [&](const std::string& what) {
      return fmt::format("node `{}`: {}", root.name, what);
    };
    if (graph_.value(graph_.nodes[i].inputs[static_cast<size_t>(OperandInput(graph_.nodes[i], 1))])
            .constant == nullptr)
      return absl::OkStatus();
    const size_t input = OwnOperand(graph_.nodes[i], 1);
    const ValueId id = graph_.nodes[i].inputs[input];
    const Tensor kernel = graph_.value(id).constant->tensor;
    const WeightScheme scheme = SchemeOfKernel(root, kernel, options_);
    const int axis = scheme.axis;
    auto quantized = ToIntegers(kernel, scheme);
    if (!quantized.ok()) return Annotate(quantized.status(), where("weights"));
    const std::string* otherwise = OtherwiseOf(options_, graph_.value(id).name, axis);
    if (otherwise != nullptr) RoundOtherwise(kernel, scheme, *otherwise, *quantized);
    // A kernel that several nodes use with the same axis is quantized once.
    const auto [known, fresh] = kernels_.emplace(std::pair(id, axis), kNone);
    if (fresh) {
      known->second = AddConstant(graph_.value(id).name, *quantized, axis);
      report_.adapted_kernels += otherwise != nullptr ? 1 : 0;
    }
    graph_.nodes[i].inputs[input] = known->second;
    if (options_.bias_correction) CorrectBias(i, root, kernel, *quantized, axis);
    const auto data = static_cast<size_t>(OperandInput(graph_.nodes[i], 0));
    const Affine* const affine = AffineOf(graph_.nodes[i].inputs[data]);
    std::optional<QuantizedConstant> bias;
    if (affine != nullptr) {
      QUENCH_ASSIGN_OR_RETURN(bias, BiasOf(i, root, *affine, *quantized));
    }
    const Affine used = affine != nullptr ? *affine : Affine{1, 0, 0, 255};
    const auto [outputs, output_of] = OutputsOf(root, kernel);
    const double largest = LargestAccumulator(*quantized, axis, outputs, output_of, used,
                                              bias ? &bias->integers : nullptr);
    if (largest <= std::numeric_limits<int32_t>::max()) return absl::OkStatus();
    return absl::FailedPreconditionError(where(fmt::format(
        "its sums may reach {:g}, a 32-bit accumulator holds 2147483647; exclude it", largest)));
  }

  void CorrectBias(size_t i, const Node& root, const Tensor& kernel,
                   const QuantizedConstant& quantized, int axis) {
    const std::optional<KernelLayout> layout = LayoutOf(root, kernel);
    const auto data = static_cast<size_t>(OperandInput(graph_.nodes[i], 0));
    const TensorStatistics* seen = StatisticsOf(graph_.nodes[i].inputs[data]);
    if (!layout || seen == nullptr || static_cast<int64_t>(seen->channels.size()) != layout->inputs)
      return;
    std::vector<double> means;
    for (const ChannelStatistics& channel : seen->channels) {
      means.push_back(channel.sum / std::max<double>(1, static_cast<double>(channel.elements)));
    }
    const bool biased = OperandInput(graph_.nodes[i], 2) >= 0;
    const size_t place = biased ? OwnOperand(graph_.nodes[i], 2)
                                : AddBias(graph_, static_cast<NodeId>(i), layout->outputs);
    const Value& bias = graph_.value(graph_.nodes[i].inputs[place]);
    if (bias.constant == nullptr || bias.constant->tensor.rank() != 1 ||
        bias.constant->tensor.size() != layout->outputs)
      return;
    const std::vector<double> shift = ExpectedShift(kernel, quantized, axis, *layout, means);
    std::vector<float> corrected;
    for (size_t c = 0; c < shift.size(); ++c) {
      corrected.push_back(
          static_cast<float>(bias.constant->tensor.FloatAt(static_cast<int64_t>(c)) - shift[c]));
    }
    graph_.nodes[i].inputs[place] = graph_.AddConstant(
        root.name + ".corrected", Tensor::Of(DataType::kF32, {layout->outputs}, corrected));
    ++report_.corrected_biases;
  }

  // The bias as integers, put in its place; none where it stays in float.
  absl::StatusOr<std::optional<QuantizedConstant>> BiasOf(size_t i, const Node& root,
                                                          const Affine& input,
                                                          const QuantizedConstant& kernel) {
    if (OperandInput(graph_.nodes[i], 2) < 0 || options_.bias_dtype == DataType::kF32)
      return std::nullopt;
    const size_t place = OwnOperand(graph_.nodes[i], 2);
    const Value& value = graph_.value(graph_.nodes[i].inputs[place]);
    // A matrix, or a factor that is not 1, is not a bias of sums.
    if (value.constant == nullptr || value.constant->tensor.rank() != 1 ||
        root.Float("alpha", 1) != 1 || root.Float("beta", 1) != 1)
      return std::nullopt;
    const Tensor tensor = value.constant->tensor;
    const std::string name = root.name + "." + value.name;
    if (kernel.scale.rank() == 1 && kernel.scale.size() != tensor.size()) return std::nullopt;
    absl::StatusOr<QuantizedConstant> bias =
        options_.bias_dtype == DataType::kI8
            ? QuantizeKernel(tensor, -1, {DataType::kI8, true, options_.power_of_two})
            : QuantizeBias(tensor, input.scale, kernel.scale);
    // A channel whose weights are next to nothing has steps too small for its bias.
    if (absl::IsFailedPrecondition(bias.status())) {
      float_biases_.push_back("`" + root.name + "`");
      return std::nullopt;
    }
    if (!bias.ok()) return Annotate(bias.status(), fmt::format("node `{}`: bias", root.name));
    const int axis = bias->scale.rank() == 1 ? 0 : -1;
    graph_.nodes[i].inputs[place] = AddConstant(name, *bias, axis);
    small_biases_ |= options_.bias_dtype == DataType::kI8;
    if (options_.bias_dtype == DataType::kI8) return std::nullopt;
    return *std::move(bias);
  }

  // Pairs of QuantizeLinear and DequantizeLinear behind every wanted value; returns what comes out
  // of the second. A graph output stays the value itself.
  std::map<ValueId, ValueId> QuantizeValues() {
    std::map<ValueId, ValueId> real;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (wanted_[i]) real[static_cast<ValueId>(i)] = AddPair(static_cast<ValueId>(i));
    }
    return real;
  }

  ValueId AddPair(ValueId id) {
    const std::string name = graph_.value(id).name;
    const Affine* const affine = AffineOf(id);
    if (affine == nullptr) {
      ++report_.dynamic_values;
      const NodeId node = graph_.AddNode("DynamicQuantizeLinear", name + ".q", {id}, 3);
      const std::vector<ValueId> parts = graph_.node(node).outputs;
      return Dequantize(name + ".real", parts[0], parts[1], parts[2], -1);
    }
    ++report_.static_values;
    Tensor zero = Tensor::Zeros(options_.activation_dtype, {});
    *zero.mutable_bytes() = static_cast<std::byte>(affine->zero_point);
    const ValueId scale = graph_.AddConstant(name + ".scale", Tensor::ScalarF32(affine->scale));
    const ValueId zero_point = graph_.AddConstant(name + ".zero_point", zero);
    const NodeId node = graph_.AddNode("QuantizeLinear", name + ".q", {id, scale, zero_point});
    return Dequantize(name + ".real", graph_.node(node).outputs[0], scale, zero_point, -1);
  }

  void Warn() {
    const auto warn = [&](std::string text) { report_.warnings.push_back(std::move(text)); };
    if (report_.adapted_kernels > 0 && options_.rounding->random) warn(kRandomRounding);
    if (report_.static_values > 0 && statistics_->random) {
      warn("calibrated on random inputs: ranges may differ on real data");
    }
    if (report_.static_values > 0 && statistics_->samples < 10) {
      warn(fmt::format("calibrated on {} {}: a hundred give steadier ranges", statistics_->samples,
                       statistics_->samples == 1 ? "sample" : "samples"));
    }
    if (report_.dynamic_values > 0 && options_.activation_dtype != DataType::kU8) {
      warn(fmt::format("{} values get their ranges while running, as u8", report_.dynamic_values));
    }
    if (report_.static_values == 0 &&
        (options_.symmetric || options_.power_of_two || !options_.method.empty())) {
      warn(
          "ranges of each run are asymmetric extrema: method, symmetric and power_of_two are for "
          "static ones");
    }
    if (!float_biases_.empty()) {
      warn(fmt::format("biases too large for steps of their channels stay in float: {}",
                       fmt::join(float_biases_, ", ")));
    }
    if (small_biases_) {
      warn("biases of 8 bits lose most of their precision; 32 bits cost nothing");
    }
    if (options_.bias_correction && report_.corrected_biases == 0) {
      warn("no bias was corrected: statistics of the inputs of Conv or Gemm are needed");
    }
    if (report_.weights == 0) warn("nothing was quantized");
    std::vector<std::string> flat;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const TensorStatistics* seen = wanted_[i] ? StatisticsOf(static_cast<ValueId>(i)) : nullptr;
      if (seen != nullptr && seen->low == seen->high)
        flat.push_back("`" + graph_.values[i].name + "`");
    }
    if (!flat.empty()) {
      warn(fmt::format("{} values were the same in every element of every sample: {}", flat.size(),
                       fmt::join(flat, ", ")));
    }
  }

  Graph graph_;
  const std::string fingerprint_;  // of the module before
  const Statistics* const statistics_;
  const QuantizeOptions& options_;
  const MethodInfo* const method_;
  const StepContext& context_;
  std::vector<Part> parts_;                             // per node
  std::vector<bool> wanted_;                            // per value: as integers
  std::vector<ValueId> parent_;                         // per value: union of those with one scale
  std::map<ValueId, Affine> affines_;                   // by representative
  std::map<std::pair<ValueId, int>, ValueId> kernels_;  // dequantized, by constant and axis
  std::vector<std::string> float_biases_;               // nodes whose biases do not fit
  bool small_biases_ = false;                           // some have 8 bits
  QuantizeReport report_;
};

}  // namespace

absl::StatusOr<QuantizedModule> Quantize(const Graph& graph, const Statistics* statistics,
                                         const QuantizeOptions& options,
                                         const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(Graph checked, CheckedForQuantization(graph, options));
  const std::string fingerprint = Fingerprint(graph);
  if (options.rounding != nullptr) {
    QUENCH_RETURN_IF_ERROR(CheckRounding(*options.rounding, graph, fingerprint, options));
  }
  if (options.source == RangeSource::kWeights) {
    if (statistics != nullptr)
      return InvalidArgument("statistics are for activations, which stay in float");
    return QuantizeWeightsOnly(std::move(checked), options, context);
  }
  if (statistics != nullptr) QUENCH_RETURN_IF_ERROR(CheckStatisticsOf(*statistics, fingerprint));
  passes::PassOptions grouping = options.passes;
  if (options.single_operators) grouping.disabled.insert("fuse_groups");
  QUENCH_ASSIGN_OR_RETURN(Graph fused, passes::RunPass(*passes::FindPass("fuse_groups"),
                                                       std::move(checked), grouping, context));
  return Quantizer(std::move(fused), fingerprint, statistics, options, context).Run();
}

}  // namespace quench::quantizer
