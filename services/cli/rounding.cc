#include "services/cli/rounding.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/runtime/quench_rt.h"
#include "services/quantizer/adapt_rounding.h"

namespace quench::cli {

void AddRoundingFlags(const Options& all, const std::shared_ptr<RoundingFlags>& flags) {
  const Options options = all.In("Precision").Rare();
  options
      .Add("--rounding", flags->rounding,
           "nearest: round each weight to the nearest integer. adaptive: round it up or down, "
           "whichever changes its layer's output least on the samples (mainly for 4-bit weights)",
           "nearest|adaptive (default nearest)")
      .OneOf({"nearest", "adaptive"});
  options
      .Add("--rounding-data", flags->samples.data,
           "Samples for --rounding adaptive (as for `quench calibrate`)", "PATH")
      .Needs({"--rounding"});
}

bool IsAdaptive(const RoundingFlags& flags) { return flags.rounding == "adaptive"; }

absl::Status CheckRoundingFlags(const RoundingFlags& flags, bool other_samples) {
  if (IsAdaptive(flags) && flags.samples.data.empty() && !other_samples)
    return InvalidArgument("--rounding adaptive needs samples: --rounding-data PATH");
  if (!IsAdaptive(flags) && !flags.samples.data.empty())
    return InvalidArgument("--rounding-data goes with --rounding adaptive");
  return absl::OkStatus();
}

absl::StatusOr<quantizer::Rounding> AdaptHere(TapBuild& taps, const quantizer::QuantizeOptions& how,
                                              const RoundingFlags& flags,
                                              const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path library, taps.Library(context));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact, Artifact::Open(library));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Samples> samples,
                          OpenSamplesOf(flags.samples, taps.graph(), artifact->inputs(), context));
  const auto threads = static_cast<int>(quench_rt_cpus());
  return quantizer::AdaptRounding(taps.graph(), library, *samples, how,
                                  {threads, flags.samples.random > 0}, context);
}

nlohmann::json RoundingToJson(const quantizer::Rounding& rounding) {
  const auto db = [](double value) {
    return std::isnan(value)      ? nlohmann::json()
           : std::isfinite(value) ? nlohmann::json(value)
                                  : nlohmann::json("inf");
  };
  nlohmann::json kernels = nlohmann::json::array();
  for (const quantizer::AdaptedKernel& kernel : rounding.kernels) {
    kernels.push_back({{"node", kernel.node},
                       {"constant", kernel.constant},
                       {"moved", kernel.moved},
                       {"nearest_sqnr_db", db(kernel.nearest_db)},
                       {"adapted_sqnr_db", db(kernel.adapted_db)}});
  }
  return {{"samples", rounding.samples}, {"kernels", kernels}};
}

}  // namespace quench::cli
