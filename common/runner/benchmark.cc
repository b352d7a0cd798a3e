#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/base/status.h"
#include "common/runner/machine_load.h"
#include "common/runner/open_sizes.h"
#include "common/runner/runner.h"

namespace quench {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

}  // namespace

absl::StatusOr<BenchResult> Benchmark(const std::filesystem::path& path,
                                      const BenchOptions& options, const StepContext& context,
                                      const ArtifactKey& key) {
  BenchResult result;
  result.threads = options.threads;
  std::vector<Tensor> inputs;
  {
    QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                            Artifact::Open(path, {1, options.device}, key));
    QUENCH_ASSIGN_OR_RETURN(result.sizes, ChooseSizes(artifact->inputs(), options.sizes));
    QUENCH_ASSIGN_OR_RETURN(
        inputs, RandomInputs(artifact->inputs(), options.seed, result.sizes, kAnyIndex));
    result.batch = BatchOf(artifact->inputs(), artifact->outputs(), result.sizes);
    result.variant = artifact->variant();
    result.device = artifact->device();
  }
  const Clock::time_point opening = Clock::now();
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                          Artifact::Open(path, {options.threads, options.device}, key));
  result.load_ms = Milliseconds(opening);
  const Clock::time_point first = Clock::now();
  QUENCH_RETURN_IF_ERROR(artifact->Run(inputs, context).status());
  result.first_run_ms = Milliseconds(first);
  result.arena_bytes = artifact->arena_bytes();
  result.arena_lower_bound = artifact->arena_lower_bound();

  // A tenth of the time warms caches and clocks up; at least one run each.
  const double warm_up_ms = 100 * options.seconds, measure_ms = 1000 * options.seconds;
  const Clock::time_point warming = Clock::now();
  do {
    QUENCH_RETURN_IF_ERROR(artifact->Time(inputs, context).status());
  } while (Milliseconds(warming) < warm_up_ms);
  std::vector<double> times;
  const MachineLoad load;
  const Clock::time_point measuring = Clock::now();
  do {
    QUENCH_ASSIGN_OR_RETURN(const double run, artifact->Time(inputs, context));
    times.push_back(run * 1000);
  } while (Milliseconds(measuring) < measure_ms && times.size() < 10'000'000);

  if (const std::optional<double> taken = load.Taken()) {
    result.cores = load.cores();
    result.taken_cores = *taken;
  }
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  result.runs = static_cast<int64_t>(n);
  result.min_ms = times[0];
  result.median_ms = n % 2 != 0 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
  // Nearest rank: the smallest time that at least such a share of the runs does not exceed.
  const auto ranked = [&](double share) {
    return times[static_cast<size_t>(std::ceil(share * static_cast<double>(n))) - 1];
  };
  result.lower_quartile_ms = ranked(0.25);
  result.upper_quartile_ms = ranked(0.75);
  result.p99_ms = ranked(0.99);
  return result;
}

std::vector<std::string> BenchWarnings(const BenchResult& result) {
  constexpr double kOthers = 0.2;  // of a core, beyond those that the threads leave free
  constexpr int64_t kLeastRuns = 5;
  constexpr double kScatter = 1.2;
  constexpr double kClockMs = 1e-3;  // of runs so short the clock decides
  std::vector<std::string> warnings;
  if (result.cores > 0 && result.taken_cores + result.threads > result.cores + kOthers) {
    warnings.push_back(fmt::format(
        "the machine was busy: other programs took {:.1f} of {} core{}, and these runs wanted {}; "
        "they would be faster without",
        result.taken_cores, result.cores, result.cores == 1 ? "" : "s", result.threads));
  }
  const auto scatters = [](double low, double high) {
    return high > kScatter * low && high - low > kClockMs;
  };
  if (result.runs >= kLeastRuns && (scatters(result.lower_quartile_ms, result.upper_quartile_ms) ||
                                    scatters(result.min_ms, result.median_ms))) {
    warnings.push_back(fmt::format(
        "the runs scatter: a quarter took {:.4g} ms at most and a quarter {:.4g} ms at least, the "
        "fastest {:.4g} ms; the minimum is what the machine can do",
        result.lower_quartile_ms, result.upper_quartile_ms, result.min_ms));
  }
  return warnings;
}

}  // namespace quench
