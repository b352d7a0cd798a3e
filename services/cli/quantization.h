// What `calibrate`, `quantize` and `compile --quantize` share.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/model_source.h"
#include "services/quantizer/calibrate.h"
#include "services/quantizer/quantize.h"

namespace quench::cli {

// The model after its passes, equalized if that is asked for (then told on stderr what it did):
// statistics are of the very module that is quantized.
absl::StatusOr<Graph> PrepareForQuantization(const ModelOptions& options, bool equalize,
                                             const StepContext& context);

// Where samples come from: `data`, or `random` of them.
struct SampleOptions {
  std::string data;
  int64_t random = 0;
  uint64_t seed = 1;
  int64_t workers = 0;  // 0: one for each CPU
};
absl::StatusOr<quantizer::Statistics> CalibrateHere(const Graph& graph,
                                                    const SampleOptions& samples,
                                                    const StepContext& context);
// Says on stderr what is doubtful about statistics: random samples, values that were not finite.
void WarnOf(const quantizer::Statistics& statistics);

// How to quantize, from the command line.
struct QuantizeFlags {
  quantizer::QuantizeOptions options;
  std::string activation_dtype = "int8", kernel_dtype, bias_dtype = "int32";
  std::string type = "any";
  bool equalize = false;
};
// Whether any of them was given.
bool IsChanged(const QuantizeFlags& flags);
void AddQuantizeFlags(const Options& options, const std::shared_ptr<QuantizeFlags>& flags);
absl::StatusOr<quantizer::QuantizedModule> QuantizeHere(const Graph& graph,
                                                        const quantizer::Statistics* statistics,
                                                        const QuantizeFlags& flags,
                                                        const passes::PassOptions& passes,
                                                        const StepContext& context);
// Warnings on stderr, and how many layers became integers on stdout, with those that did not.
void PrintLayers(const quantizer::QuantizeReport& report);
// Every convolution and product: node, op, quantized, reason.
nlohmann::json LayersToJson(const quantizer::QuantizeReport& report);

}  // namespace quench::cli
