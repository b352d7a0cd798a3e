// Adaptive rounding of `quantize` and `compile --quantize`.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/taps.h"
#include "services/quantizer/rounding.h"

namespace quench::cli {

struct RoundingFlags {
  std::string rounding = "nearest";  // or adaptive
  SampleOptions samples;             // that it is adapted to
};
void AddRoundingFlags(const Options& options, const std::shared_ptr<RoundingFlags>& flags);
bool IsAdaptive(const RoundingFlags& flags);
// Adaptive rounding needs samples, its own or others that there are; its own are for nothing else.
absl::Status CheckRoundingFlags(const RoundingFlags& flags, bool other_samples);

// Rounding for the module that will be quantized as `how` says.
absl::StatusOr<quantizer::Rounding> AdaptHere(TapBuild& taps, const quantizer::QuantizeOptions& how,
                                              const RoundingFlags& flags,
                                              const StepContext& context);

nlohmann::json RoundingToJson(const quantizer::Rounding& rounding);

}  // namespace quench::cli
