#include "services/quantizer/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/runner/fidelity.h"
#include "common/runner/runner.h"
#include "services/quantizer/switches.h"

namespace quench::quantizer {
namespace {

constexpr int64_t kReferenceBytes = int64_t{256} << 20;  // of outputs in float that are kept

class Search {
 public:
  Search(std::vector<std::string> layers, Artifact& artifact, const Samples& samples,
         const SelectOptions& options, const StepContext& context)
      : layers_(std::move(layers)),
        artifact_(artifact),
        samples_(samples),
        options_(options),
        context_(context),
        sensitivity_samples_(std::min(options.sensitivity_samples, samples.count())) {
    const auto count = static_cast<int64_t>(layers_.size());
    // Every layer on the first samples, then a trial with none in float and a bisection on all.
    total_ = sensitivity_samples_ * count +
             samples.count() * (1 + static_cast<int64_t>(std::ceil(std::log2(count + 1))));
  }

  absl::StatusOr<Selection> Run() {
    result_.samples = samples_.count();
    QUENCH_ASSIGN_OR_RETURN(const bool holds, Try(0));
    if (!holds || options_.always_sensitivity) QUENCH_RETURN_IF_ERROR(MeasureSensitivity());
    if (!holds) QUENCH_RETURN_IF_ERROR(Bisect());
    // Noise as large as what the model says is not a quantized model, whatever the budget allows.
    if (!(result_.cost.sqnr_db > 0)) return AllNoise();
    context_.Report({"select", "", total_, total_});  // fewer trials than there might have been
    return std::move(result_);
  }

 private:
  absl::StatusOr<std::vector<Tensor>> Evaluate(std::vector<Tensor> inputs,
                                               const std::vector<uint8_t>& on) {
    const auto count = static_cast<int64_t>(on.size());
    Tensor switches = Tensor::Zeros(DataType::kBool, {count});
    for (size_t k = 0; k < on.size(); ++k) switches.mutable_bytes()[k] = std::byte{on[k]};
    inputs.push_back(std::move(switches));
    return artifact_.Run(inputs, context_);
  }

  absl::StatusOr<std::vector<Tensor>> Reference(int64_t sample, const std::vector<Tensor>& inputs) {
    if (const auto found = references_.find(sample); found != references_.end())
      return found->second;
    if (last_reference_ == sample) return last_outputs_;
    QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                            Evaluate(inputs, std::vector<uint8_t>(layers_.size(), 0)));
    int64_t bytes = 0;
    for (const Tensor& output : outputs) bytes += static_cast<int64_t>(output.bytes().size());
    if (reference_bytes_ + bytes > kReferenceBytes) {  // the last one, for the next layer
      last_reference_ = sample;
      return last_outputs_ = std::move(outputs);
    }
    reference_bytes_ += bytes;
    return references_.emplace(sample, std::move(outputs)).first->second;
  }

  absl::Status AddSample(int64_t sample, const std::vector<Tensor>& inputs,
                         const std::vector<uint8_t>& on, Score& score) {
    QUENCH_RETURN_IF_ERROR(context_.Check());
    const auto named = [&](const absl::Status& status) {
      return Annotate(status, fmt::format("sample {}", samples_.NameOf(sample)));
    };
    const auto a = Reference(sample, inputs);
    if (!a.ok()) return named(a.status());
    const auto b = Evaluate(inputs, on);
    if (!b.ok()) return named(b.status());
    return named(score.Add(*a, *b));
  }

  bool Holds(const Cost& cost) const {
    // Noise as large as what the model says: all layers in float are better where that is allowed.
    if (options_.may_keep_all && !(cost.sqnr_db > 0)) return false;
    return quantizer::Holds(options_.budget, cost);
  }

  // The `kept` most sensitive layers in float, all samples.
  absl::StatusOr<bool> Try(int kept) {
    std::vector<uint8_t> on(layers_.size(), 1);
    for (int i = 0; i < kept; ++i) on[order_[static_cast<size_t>(i)]] = 0;
    Score score(options_.labels);
    for (int64_t sample = 0; sample < samples_.count(); ++sample) {
      context_.Report({"select", fmt::format("{} layers in float", kept), done_++, total_});
      QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, samples_.Read(sample));
      QUENCH_RETURN_IF_ERROR(AddSample(sample, inputs, on, score));
    }
    const Cost cost = score.cost();
    QUENCH_RETURN_IF_ERROR(score.Check(options_.budget));
    result_.trials.push_back({kept, cost});
    result_.cost = cost;
    return Holds(cost);
  }

  absl::Status MeasureSensitivity() {
    result_.sensitivity_samples = sensitivity_samples_;
    std::vector<Score> scores(layers_.size(), Score(options_.labels));
    for (int64_t sample = 0; sample < sensitivity_samples_; ++sample) {
      QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, samples_.Read(sample));
      for (size_t k = 0; k < layers_.size(); ++k) {
        context_.Report({"select", layers_[k], done_++, total_});
        std::vector<uint8_t> on(layers_.size(), 0);
        on[k] = 1;
        QUENCH_RETURN_IF_ERROR(AddSample(sample, inputs, on, scores[k]));
      }
    }
    for (size_t k = 0; k < layers_.size(); ++k) order_.push_back(k);
    std::vector<Cost> costs;
    for (const Score& score : scores) costs.push_back(score.cost());
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      if (costs[a].sqnr_db != costs[b].sqnr_db) return costs[a].sqnr_db < costs[b].sqnr_db;
      return costs[a].drop.value_or(0) > costs[b].drop.value_or(0);
    });
    for (const size_t k : order_) result_.layers.push_back({layers_[k], costs[k], false});
    return absl::OkStatus();
  }

  // Fails at `low` kept layers, holds at `high`; with all of them in float there is no cost.
  absl::Status Bisect() {
    int low = 0, high = static_cast<int>(layers_.size());
    Cost cost;
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      QUENCH_ASSIGN_OR_RETURN(const bool holds, Try(middle));
      if (holds) cost = result_.cost;
      (holds ? high : low) = middle;
    }
    if (high == static_cast<int>(layers_.size()) && options_.may_keep_all)
      cost = {std::numeric_limits<double>::infinity(), std::nullopt};
    if (high == static_cast<int>(layers_.size()) && !options_.may_keep_all) {
      return absl::FailedPreconditionError(fmt::format(
          "no layer of {} can be in integers within this budget: with all in integers {}, with "
          "only "
          "`{}`, the least sensitive, {}",
          layers_.size(), CostText(result_.trials.front().cost), result_.layers.back().node,
          CostText(result_.layers.size() > 1 ? result_.trials.back().cost
                                             : result_.trials.front().cost)));
    }
    result_.cost = cost;
    for (int i = 0; i < high; ++i) result_.layers[static_cast<size_t>(i)].kept = true;
    return absl::OkStatus();
  }

  // The error: the cost found, the worst layer of those in integers, and what would help.
  absl::Status AllNoise() {
    if (result_.layers.empty()) QUENCH_RETURN_IF_ERROR(MeasureSensitivity());
    const auto worst = std::find_if(result_.layers.begin(), result_.layers.end(),
                                    [](const LayerSensitivity& layer) { return !layer.kept; });
    return absl::FailedPreconditionError(fmt::format(
        "in integers an output is mostly noise: {} over {} samples; the worst layer is `{}`, the "
        "SQNR with only this layer in integers is {}. A floor of SQNR (20 dB, say) keeps such "
        "layers in "
        "float; scales per "
        "channel, equalizing or other samples for calibration may save them",
        CostText({result_.cost.sqnr_db, std::nullopt}), result_.samples, worst->node,
        CostText({worst->alone.sqnr_db, std::nullopt})));
  }

  const std::vector<std::string> layers_;
  Artifact& artifact_;
  const Samples& samples_;
  const SelectOptions& options_;
  const StepContext& context_;
  const int64_t sensitivity_samples_;
  std::map<int64_t, std::vector<Tensor>> references_;  // by sample
  int64_t reference_bytes_ = 0;
  int64_t last_reference_ = -1;
  std::vector<Tensor> last_outputs_;
  std::vector<size_t> order_;  // of layers, most sensitive first
  int64_t done_ = 0, total_ = 0;
  Selection result_;
};

}  // namespace

absl::Status CheckOptions(const SelectOptions& options) {
  StatusCollector problems;
  const Budget& budget = options.budget;
  if (!budget.max_drop && !budget.min_sqnr_db) {
    problems.Add(InvalidArgument("no budget: a largest drop, or a floor of SQNR"));
  }
  if (budget.max_drop && !(*budget.max_drop >= 0 && *budget.max_drop < 1)) {
    problems.Add(InvalidArgument("the largest drop is {}, it must be at least 0 and below 1",
                                 *budget.max_drop));
  }
  if (budget.min_sqnr_db && !std::isfinite(*budget.min_sqnr_db)) {
    problems.Add(InvalidArgument("the floor of SQNR is {} dB", *budget.min_sqnr_db));
  }
  if (options.sensitivity_samples < 1) {
    problems.Add(InvalidArgument("sensitivity is measured on {} samples, 1 is the least",
                                 options.sensitivity_samples));
  }
  return problems.Finish();
}

absl::Status KeepSelected(const Selection& selection, const Graph& graph,
                          QuantizeOptions& options) {
  const std::string fingerprint = Fingerprint(graph);
  if (selection.fingerprint != fingerprint) {
    return absl::FailedPreconditionError(
        fmt::format("the selection is of module `{}`, this is `{}`: another model, or other passes",
                    selection.fingerprint.substr(0, 16), fingerprint.substr(0, 16)));
  }
  for (const LayerSensitivity& layer : selection.layers) {
    if (layer.kept)
      options.kept[layer.node] =
          "kept by the budget: SQNR with only this layer quantized: " + CostText(layer.alone);
  }
  return absl::OkStatus();
}

absl::StatusOr<Selection> Select(const Graph& module, const std::filesystem::path& library,
                                 const Samples& samples, const SelectOptions& options,
                                 const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(CheckOptions(options));
  std::vector<std::string> layers = SwitchedLayers(module);
  if (layers.empty()) {
    return absl::FailedPreconditionError(
        "the module has no switches: quantize with them, and compile that");
  }
  if (samples.count() < 1) return InvalidArgument("no samples to measure on");
  QUENCH_ASSIGN_OR_RETURN(const auto artifact, Artifact::Open(library, options.threads));
  const std::vector<ArtifactTensor>& inputs = artifact->inputs();
  if (inputs.empty() || inputs.back().name != kSwitchesInput || inputs.back().dims.size() != 1 ||
      inputs.back().dims[0].value != static_cast<int64_t>(layers.size())) {
    return absl::FailedPreconditionError(
        fmt::format("the library is not a build of this module: its last input is not `{}` of {}",
                    kSwitchesInput, layers.size()));
  }
  QUENCH_RETURN_IF_ERROR(CheckOutputs(artifact->outputs(), options.budget));
  QUENCH_ASSIGN_OR_RETURN(Selection selection,
                          Search(std::move(layers), *artifact, samples, options, context).Run());
  selection.fingerprint = FloatModuleOf(module);
  return selection;
}

std::string ToTable(const Selection& selection) {
  std::string text;
  if (!selection.layers.empty()) {
    constexpr std::string_view kTitle = "SQNR with only this layer quantized";
    text += fmt::format("{:<40} {}\n", "layer", kTitle);
    for (const LayerSensitivity& layer : selection.layers) {
      text += fmt::format("{:<40} {:>{}}{}\n", layer.node,
                          CostText({layer.alone.sqnr_db, std::nullopt}), kTitle.size(),
                          layer.kept ? "  stays in float" : "");
    }
  }
  for (const Trial& trial : selection.trials) {
    text += fmt::format("SQNR with {} layer{} left in float: {}\n", trial.kept,
                        trial.kept == 1 ? "" : "s", CostText(trial.cost));
  }
  return text;
}

}  // namespace quench::quantizer
