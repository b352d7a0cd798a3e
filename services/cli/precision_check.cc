#include "services/cli/precision_check.h"

#include <algorithm>
#include <array>

#include "common/base/status.h"

namespace quench::cli {
namespace {

// Options of integers that --precision decides, and those that say how statistics become integers.
constexpr std::array<std::string_view, 5> kDecided = {"--type", "--kernel-dtype", "--block-size",
                                                      "--bias-dtype", "--per-channel"};
constexpr std::array<std::string_view, 13> kOfIntegers = {
    "--method",         "--percentile",    "--symmetric",      "--bias-correction", "--equalize",
    "--split-outliers", "--split-tensors", "--power-of-two",   "--include",         "--exclude",
    "--rounding",       "--rounding-data", "--rounding-random"};

}  // namespace

bool HasCalibration(const QuantizeJob& job) {
  return !job.calibration.empty() || !job.samples.data.empty() || job.samples.random > 0;
}

bool HasEvaluation(const QuantizeJob& job) {
  return !job.how.budget->data.empty() || !job.samples.data.empty() || job.samples.random > 0;
}

absl::Status CheckPrecision(const QuantizeJob& job, const std::vector<std::string>& given) {
  StatusCollector problems;
  const int sources = (job.calibration.empty() ? 0 : 1) + (job.samples.data.empty() ? 0 : 1) +
                      (job.samples.random > 0 ? 1 : 0);
  if (sources > 1) {
    problems.Add(InvalidArgument(
        "--precision fastest takes at most one of --calibration-data PATH, --calibration FILE and "
        "--calibration-random N"));
  }
  for (const std::string& option : given) {
    if (std::find(kDecided.begin(), kDecided.end(), option) != kDecided.end())
      problems.Add(InvalidArgument("{}: --precision fastest decides this itself", option));
    if (sources == 0 &&
        std::find(kOfIntegers.begin(), kOfIntegers.end(), option) != kOfIntegers.end()) {
      problems.Add(InvalidArgument(
          "{} is about int8, which --precision fastest leaves out without --calibration-data, "
          "--calibration or --calibration-random",
          option));
    }
  }
  if (!job.calibration.empty() && !HasEvaluation(job)) {
    problems.Add(InvalidArgument(
        "--precision fastest measures the accuracy of int8: it needs --evaluation-data PATH beside "
        "--calibration"));
  }
  const std::string data = job.samples.random > 0 ? "random" : job.samples.data;
  problems.Add(
      CheckBudget(*job.how.budget, job.how.budget->data.empty() ? data : job.how.budget->data));
  const bool samples = !job.samples.data.empty() || job.samples.random > 0;
  problems.Add(CheckRoundingFlags(*job.how.rounding, samples));
  return problems.Finish();
}

}  // namespace quench::cli
