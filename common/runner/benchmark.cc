#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/base/status.h"
#include "common/runner/runner.h"

namespace quench {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

}  // namespace

absl::StatusOr<BenchResult> Benchmark(const std::filesystem::path& path,
                                      std::span<const Tensor> inputs, int threads, double seconds,
                                      const StepContext& context, const ArtifactKey& key) {
  BenchResult result;
  const Clock::time_point opening = Clock::now();
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                          Artifact::Open(path, threads, key));
  result.load_ms = Milliseconds(opening);
  const Clock::time_point first = Clock::now();
  QUENCH_RETURN_IF_ERROR(artifact->Run(inputs, context).status());
  result.first_run_ms = Milliseconds(first);
  result.arena_bytes = artifact->arena_bytes();
  result.arena_lower_bound = artifact->arena_lower_bound();

  // A tenth of the time warms caches and clocks up; at least one run each.
  const double warm_up_ms = 100 * seconds, measure_ms = 1000 * seconds;
  const Clock::time_point warming = Clock::now();
  do {
    QUENCH_RETURN_IF_ERROR(artifact->Time(inputs, context).status());
  } while (Milliseconds(warming) < warm_up_ms);
  std::vector<double> times;
  const Clock::time_point measuring = Clock::now();
  do {
    QUENCH_ASSIGN_OR_RETURN(const double run, artifact->Time(inputs, context));
    times.push_back(run * 1000);
  } while (Milliseconds(measuring) < measure_ms && times.size() < 10'000'000);

  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  result.runs = static_cast<int64_t>(n);
  result.min_ms = times[0];
  result.median_ms = n % 2 != 0 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
  // Nearest rank: the smallest time that at least 99 % of the runs do not exceed.
  result.p99_ms = times[static_cast<size_t>(std::ceil(0.99 * static_cast<double>(n))) - 1];
  return result;
}

}  // namespace quench
