// Options and steps that `calibrate`, `quantize` and `compile --quantize` share.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "services/cli/budget.h"
#include "services/cli/model_source.h"
#include "services/cli/rounding.h"
#include "services/cli/taps.h"
#include "services/quantizer/calibrate.h"
#include "services/quantizer/quantize.h"
#include "services/quantizer/split_outliers.h"
#include "services/quantizer/split_tensors.h"

namespace quench::cli {

// Rewrites that make a model fitter for integers and leave its function as it is.
struct RescueFlags {
  bool equalize = false;
  double split_outliers = 0;  // of channels, percent; 0: none are
  int64_t split_tensors = 0;  // parts; 0: none are split
};
void AddRescueFlags(const Options& options, RescueFlags& flags);
// The model after its passes and what is asked for (then told on stderr what it did): statistics are
// of the very module that is quantized.
absl::StatusOr<Graph> PrepareForQuantization(const ModelOptions& options, const RescueFlags& rescue,
                                             const StepContext& context);

// The largest magnitudes of values on samples; infinite where they were not finite.
std::map<std::string, double> MagnitudesIn(const quantizer::Statistics& statistics);
// Those for --float16: from a file of statistics, which must be of this module.
absl::StatusOr<std::map<std::string, double>> MagnitudesOf(const std::string& calibration,
                                                           const ModelOptions& options,
                                                           const RescueFlags& rescue,
                                                           const StepContext& context);

// Reports of these rewrites, on stderr.
void TellEqualized(int pairs, double before, double after);
void TellOutliers(const std::vector<quantizer::OutlierLayer>& layers);
void TellSplit(const std::vector<quantizer::SplitLayer>& layers);

// `ran_on` becomes the device that samples ran on (Artifact::device).
absl::StatusOr<quantizer::Statistics> CalibrateHere(TapBuild& taps, const SampleOptions& samples,
                                                    const StepContext& context,
                                                    std::string* ran_on = nullptr);
// Says on stderr what is doubtful about statistics: random samples, values that were not finite.
void WarnOf(const quantizer::Statistics& statistics);

// How to quantize, from the command line.
struct QuantizeFlags {
  quantizer::QuantizeOptions options;
  std::string activation_dtype = "int8", kernel_dtype, bias_dtype = "int32";
  std::string type = "any";
  int64_t block_size = -1;  // not given
  RescueFlags rescue;
  std::shared_ptr<RoundingFlags> rounding = std::make_shared<RoundingFlags>();
  std::shared_ptr<BudgetFlags> budget = std::make_shared<BudgetFlags>();
};
// Request of `compile --quantize`.
struct QuantizeJob {
  QuantizeFlags how;
  SampleOptions samples;    // of calibration, where `calibration` is empty
  std::string calibration;  // a file of statistics
};
// As the quantizer takes them, the passes left out.
quantizer::QuantizeOptions OptionsOf(const QuantizeFlags& flags);
// Whether ranges of activations are to come from statistics.
bool WantsRanges(const QuantizeFlags& flags);
void AddQuantizeFlags(const Options& options, const std::shared_ptr<QuantizeFlags>& flags);
// Fate of the layers, and trials for a budget if there was one.
struct Quantization {
  quantizer::QuantizeReport report;
  std::shared_ptr<const quantizer::Rounding> rounding;  // null: to the nearest
  std::optional<quantizer::Selection> selection;
};
struct QuantizedModel {
  Graph graph;  // stage `quantized`
  Quantization quantization;
};
// Quantizes the taps' graph. Rounding is adapted first where that is asked for; then, with a budget, layers
// that it keeps in float are looked for.
absl::StatusOr<QuantizedModel> QuantizeHere(TapBuild& taps, const quantizer::Statistics* statistics,
                                            const QuantizeFlags& flags,
                                            const passes::PassOptions& passes,
                                            const StepContext& context);
// On stderr.
void PrintWarnings(const quantizer::QuantizeReport& report);
// Warnings on stderr; on stdout what rounding gained, what was tried for a budget, and how many layers became integers,
// with those that did not.
void PrintLayers(const Quantization& quantization);
// Every convolution, product and recurrent layer: node, op, quantized, reason.
nlohmann::json LayersToJson(const quantizer::QuantizeReport& report);
// How many values, weights, biases and kernels were dealt with how.
nlohmann::json CountsToJson(const quantizer::QuantizeReport& report);

}  // namespace quench::cli
