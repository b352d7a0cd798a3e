#include "services/cli/quantization.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/runtime/quench_rt.h"
#include "services/cli/colour.h"
#include "services/quantizer/equalize.h"
#include "services/quantizer/methods/method.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {

void AddRescueFlags(const Options& all, RescueFlags& flags) {
  const Options options = all.In("Precision").Rare();
  options.Flag("--equalize", flags.equalize,
               "First even out channel ranges across consecutive layers. Give it to both calibrate "
               "and quantize");
  options
      .Add("--split-outliers", flags.split_outliers,
           "Duplicate the PERCENT of channels with the largest weights and divide them "
           "among the copies. Give the same value to calibrate and quantize",
           "PERCENT (2 is usual)")
      .Range(0, 50);
  options
      .Add("--split-tensors", flags.split_tensors,
           "Split convolutions whose channels have very uneven ranges into up to N parts, each "
           "with its own range. Give the same value to calibrate and quantize",
           "N (2 to 8)")
      .Range(2, 8);
}

void TellEqualized(int pairs, double before, double after) {
  fmt::print(stderr,
             "quench: equalized {} pairs of layers; channel ranges now differ by a factor of "
             "{:.3g} (before: {:.3g})\n",
             pairs, after, before);
}

void TellOutliers(const std::vector<quantizer::OutlierLayer>& layers) {
  fmt::print(stderr, "quench: duplicated the outlier channels of {} layers\n", layers.size());
  for (const quantizer::OutlierLayer& layer : layers) {
    fmt::print(stderr, "quench:   {}: {} + {} channels, largest weights {:.2g} times smaller\n",
               layer.node, layer.channels, layer.copies, layer.spared);
  }
}

void TellSplit(const std::vector<quantizer::SplitLayer>& layers) {
  fmt::print(stderr, "quench: split {} layers\n", layers.size());
  for (const quantizer::SplitLayer& layer : layers) {
    fmt::print(stderr, "quench:   {}: {} channels, {:.1f} bits lost instead of {:.1f}\n",
               layer.node, fmt::join(layer.channels, " + "), layer.bits_after, layer.bits_before);
  }
}

absl::StatusOr<Graph> PrepareForQuantization(const ModelOptions& options, const RescueFlags& rescue,
                                             const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(options, context));
  if (model.canonical.stage == Stage::kQuantized) return std::move(model.canonical);
  QUENCH_ASSIGN_OR_RETURN(Graph graph, passes::RunPipeline(std::move(model.canonical),
                                                           PassOptionsOf(options), context));
  if (rescue.equalize) {
    QUENCH_ASSIGN_OR_RETURN(quantizer::Equalized equalized,
                            quantizer::Equalize(std::move(graph), context));
    TellEqualized(equalized.pairs, equalized.spread, equalized.remains);
    graph = std::move(equalized.graph);
  }
  if (rescue.split_outliers > 0) {
    QUENCH_ASSIGN_OR_RETURN(
        quantizer::OutlierModule split,
        quantizer::SplitOutliers(std::move(graph), {rescue.split_outliers / 100}, context));
    TellOutliers(split.layers);
    graph = std::move(split.graph);
  }
  if (rescue.split_tensors == 0) return graph;
  quantizer::SplitOptions how;
  how.parts = static_cast<int>(rescue.split_tensors);
  QUENCH_ASSIGN_OR_RETURN(quantizer::SplitModule split,
                          quantizer::SplitTensors(std::move(graph), how, context));
  TellSplit(split.layers);
  return std::move(split.graph);
}

std::map<std::string, double> MagnitudesIn(const quantizer::Statistics& statistics) {
  std::map<std::string, double> magnitudes;
  for (const auto& [name, value] : statistics.values)
    magnitudes[name] = std::max(std::abs(double{value.low}), std::abs(double{value.high}));
  for (const std::string& name : statistics.not_finite)
    magnitudes[name] = std::numeric_limits<double>::infinity();
  return magnitudes;
}

absl::StatusOr<std::map<std::string, double>> MagnitudesOf(const std::string& calibration,
                                                           const ModelOptions& options,
                                                           const RescueFlags& rescue,
                                                           const StepContext& context) {
  ModelOptions plain = options;
  plain.float16 = plain.bfloat16 = false;  // statistics are of the model as it is
  QUENCH_ASSIGN_OR_RETURN(const Graph graph, PrepareForQuantization(plain, rescue, context));
  QUENCH_ASSIGN_OR_RETURN(const quantizer::Statistics statistics,
                          quantizer::ReadStatistics(calibration));
  QUENCH_RETURN_IF_ERROR(quantizer::CheckStatisticsOf(statistics, Fingerprint(graph)));
  return MagnitudesIn(statistics);
}

absl::StatusOr<quantizer::Statistics> CalibrateHere(TapBuild& taps, const SampleOptions& samples,
                                                    const StepContext& context,
                                                    std::string* ran_on) {
  // Sizes are asked for before anything is built.
  if (samples.random > 0) QUENCH_RETURN_IF_ERROR(RandomSizes(samples, taps.graph()).status());
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path library, taps.Library(context));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                          Artifact::Open(library, {1, taps.device()}));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Samples> opened,
                          OpenSamplesOf(samples, taps.graph(), artifact->inputs(), context));
  quantizer::CalibrateOptions how;
  how.random = samples.random > 0;
  how.workers = static_cast<int>(samples.workers > 0 ? samples.workers : quench_rt_cpus());
  how.device = taps.device();
  if (ran_on != nullptr) *ran_on = artifact->device();
  if (samples.workers == 0 && artifact->device() != "cpu")
    how.workers = std::min(how.workers, quantizer::kWorkersOnGpu);
  return quantizer::Calibrate(taps.graph(), library, *opened, how, context);
}

void WarnOf(const quantizer::Statistics& statistics) {
  if (!statistics.not_finite.empty()) {
    PrintWarning(
        fmt::format("{} values were NaN, infinite or larger than 1e30 and have no statistics: {}",
                    statistics.not_finite.size(), fmt::join(statistics.not_finite, ", ")));
  }
  if (statistics.random) {
    PrintWarning(
        "calibrated on random inputs: ranges on real data may differ, which costs accuracy");
  }
}

namespace {

std::string MethodHelp() {
  std::string text = "How ranges are derived from statistics:";
  for (const quantizer::MethodInfo& method : quantizer::AllMethods()) {
    text += fmt::format("{} {}: {}", &method == quantizer::AllMethods().data() ? "" : ";",
                        method.name, method.doc);
  }
  return text;
}

}  // namespace

bool WantsRanges(const QuantizeFlags& flags) {
  return flags.type != "dynamic" && flags.type != "weights";
}

void AddQuantizeFlags(const Options& all, const std::shared_ptr<QuantizeFlags>& flags) {
  const Options options = all.In("Precision");
  options
      .Add("--type", flags->type,
           "Activation ranges: static (from calibration), dynamic (measured in each run), any "
           "(static where statistics exist), weights (activations stay float; only weights of "
           "matrix products, recurrent layers and embeddings become integers)",
           "static|dynamic|any|weights (default any)")
      .OneOf({"static", "dynamic", "any", "weights"});
  std::vector<std::string> methods;
  for (const quantizer::MethodInfo& method : quantizer::AllMethods())
    methods.emplace_back(method.name);
  options
      .Add("--method", flags->options.method, MethodHelp(),
           fmt::format("{} (default {})", fmt::join(methods, "|"), methods[0]))
      .OneOf(methods);
  options.Rare()
      .Add("--percentile", flags->options.percentile, "Percentile for --method percentile",
           "P (default 99)")
      .Range(50, 100)
      .Needs({"--method"});
  options.Rare()
      .Add("--kernel-dtype", flags->kernel_dtype,
           "Type of quantized weights. 4-bit types need --type weights; unsigned 4-bit weights get "
           "asymmetric ranges",
           "int8|uint8|int4|uint4 (default: that of activations, int8 for .onnx)")
      .OneOf({"int8", "uint8", "int4", "uint4"});
  options.Rare()
      .Add("--block-size", flags->block_size,
           "With --type weights: number of consecutive weights that share one scale (even); 0: one "
           "scale per output channel, like --per-channel",
           "N (default 32 for four bits, 0 for eight)")
      .Range(0, 1 << 20);
  options.Rare()
      .Add("--bias-dtype", flags->bias_dtype, "Type of biases; float32 leaves them in float",
           "int32|int8|float32 (default int32)")
      .OneOf({"int32", "int8", "float32"});
  options.Flag("--per-channel", flags->options.per_channel,
               "Use one scale per output channel of the weights instead of one per tensor");
  options.Rare().Flag(
      "--symmetric", flags->options.symmetric,
      "Use symmetric activation ranges [-m, m] (weight ranges are always symmetric)");
  options.Rare().Flag(
      "--bias-correction", flags->options.bias_correction,
      "Adjust biases to cancel the mean error from rounding the weights (needs --calibration)");
  AddRescueFlags(options, flags->rescue);
  options.Rare().Flag("--power-of-two", flags->options.power_of_two,
                      "Round scales to powers of two");
  options.Rare().Add("--include", flags->options.include,
                     "Quantize only these nodes: a name, a pattern, or op:NAME", "PATTERN");
  options.Add("--exclude", flags->options.exclude,
              "Leave these nodes in float: a name, a pattern, or op:NAME", "PATTERN");
  AddRoundingFlags(options, flags->rounding);
  AddBudgetFlags(options, flags->budget);
}

quantizer::QuantizeOptions OptionsOf(const QuantizeFlags& flags) {
  quantizer::QuantizeOptions options = flags.options;
  options.activation_dtype = *ParseDataType(flags.activation_dtype);
  if (!flags.kernel_dtype.empty()) options.kernel_dtype = *ParseDataType(flags.kernel_dtype);
  options.bias_dtype = *ParseDataType(flags.bias_dtype);
  if (flags.block_size >= 0) options.block_size = flags.block_size;
  options.source = flags.type == "static"    ? quantizer::RangeSource::kStatic
                   : flags.type == "dynamic" ? quantizer::RangeSource::kDynamic
                   : flags.type == "weights" ? quantizer::RangeSource::kWeights
                                             : quantizer::RangeSource::kAny;
  return options;
}

absl::StatusOr<QuantizedModel> QuantizeHere(TapBuild& taps, const quantizer::Statistics* statistics,
                                            const QuantizeFlags& flags,
                                            const passes::PassOptions& passes,
                                            const StepContext& context) {
  const Graph& graph = taps.graph();
  quantizer::QuantizeOptions options = OptionsOf(flags);
  options.passes = passes;
  Quantization quantization;
  if (IsAdaptive(*flags.rounding)) {
    // Mistakes are told before a build and a search that take their time.
    QUENCH_RETURN_IF_ERROR(quantizer::Quantize(graph, statistics, options, context).status());
    QUENCH_ASSIGN_OR_RETURN(quantizer::Rounding rounding,
                            AdaptHere(taps, options, *flags.rounding, context));
    quantization.rounding = options.rounding =
        std::make_shared<const quantizer::Rounding>(std::move(rounding));
  }
  if (HasBudget(*flags.budget)) {
    QUENCH_ASSIGN_OR_RETURN(quantization.selection,
                            SelectHere(graph, statistics, options, *flags.budget, context));
    QUENCH_RETURN_IF_ERROR(quantizer::KeepSelected(*quantization.selection, graph, options));
  }
  QUENCH_ASSIGN_OR_RETURN(quantizer::QuantizedModule module,
                          quantizer::Quantize(graph, statistics, options, context));
  quantization.report = std::move(module.report);
  return QuantizedModel{std::move(module.graph), std::move(quantization)};
}

void PrintWarnings(const quantizer::QuantizeReport& report) {
  for (const std::string& warning : report.warnings) PrintWarning(warning);
}

void PrintLayers(const Quantization& quantization) {
  const quantizer::QuantizeReport& report = quantization.report;
  PrintWarnings(report);
  if (quantization.selection) fmt::print("{}", quantizer::ToTable(*quantization.selection));
  if (quantization.rounding) fmt::print("{}", quantizer::ToTable(*quantization.rounding));
  int quantized = 0;
  for (const quantizer::LayerChoice& layer : report.layers) quantized += layer.quantized ? 1 : 0;
  fmt::print("  layers   {} of {} quantized\n", quantized, report.layers.size());
  for (const quantizer::LayerChoice& layer : report.layers) {
    if (!layer.quantized)
      fmt::print("  float    {} ({}): {}\n", layer.node, layer.op, layer.reason);
  }
}

nlohmann::json LayersToJson(const quantizer::QuantizeReport& report) {
  nlohmann::json layers = nlohmann::json::array();
  for (const quantizer::LayerChoice& layer : report.layers) {
    layers.push_back({{"node", layer.node},
                      {"op", layer.op},
                      {"quantized", layer.quantized},
                      {"reason", layer.reason}});
  }
  return layers;
}

nlohmann::json CountsToJson(const quantizer::QuantizeReport& report) {
  return {{"static_values", report.static_values},
          {"dynamic_values", report.dynamic_values},
          {"weights", report.weights},
          {"corrected_biases", report.corrected_biases},
          {"adapted_kernels", report.adapted_kernels}};
}

}  // namespace quench::cli
