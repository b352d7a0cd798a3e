#include "services/codegen/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runner/runner.h"
#include "services/codegen/options/checks.h"
#include "services/codegen/trials.h"

namespace quench::codegen {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRanks = 6;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr char kWho[] = "opt level 4";

struct Trial : TrialBuild {
  std::vector<double> runs;  // seconds of whole runs
};

class Measurer {
 public:
  Measurer(const Graph& graph, const CompileOptions& options, const StepContext& context)
      : graph_(graph),
        options_(options),
        check_(options.check),
        seconds_(options.tune_seconds),
        context_(context) {
    options_.measured.emplace();
    options_.check = CheckMode::kNo;
  }

  absl::StatusOr<CompileReport> Run(const std::filesystem::path& library,
                                    const std::filesystem::path& header) {
    QUENCH_RETURN_IF_ERROR(CheckTrialTarget(options_, kWho));
    // Objects and archives hold the same code as the shared libraries that are measured.
    emit_ = options_.emit;
    options_.emit = Emit::kSharedLibrary;
    QUENCH_ASSIGN_OR_RETURN(
        folder_, TempDir::Create(library.has_parent_path() ? library.parent_path() : "."));
    QUENCH_RETURN_IF_ERROR(BuildTrials());
    QUENCH_ASSIGN_OR_RETURN(inputs_, TypicalInputs(graph_, *trials_[0].artifact));
    std::vector<Trial*> all;
    for (Trial& trial : trials_) all.push_back(&trial);
    QUENCH_RETURN_IF_ERROR(Measure(all, seconds_, "kernels"));
    const int rounds = static_cast<int>(trials_[0].runs.size());
    options_.measured->microseconds = Microseconds();
    QUENCH_ASSIGN_OR_RETURN(Trial fastest, Build("measured"));
    // Each by itself was the fastest; whether all together are is seen again.
    trials_[0].runs.clear();
    QUENCH_RETURN_IF_ERROR(Measure({&trials_[0], &fastest}, seconds_ / 4, "choice"));
    const double predicted = LowerQuartile(trials_[0].runs), measured = LowerQuartile(fastest.runs);
    if (measured > predicted) options_.measured->microseconds.clear();
    context_.Report({"compile", library.filename().string(), 0, 0});
    CompileOptions last = options_;
    last.emit = emit_;
    last.check = check_;
    QUENCH_ASSIGN_OR_RETURN(CompileReport report, Compile(graph_, last, library, header, context_));
    report.measurement = {static_cast<int>(trials_.size()), rounds, 1e3 * predicted,
                          1e3 * std::min(measured, predicted)};
    return report;
  }

 private:
  absl::StatusOr<Trial> Build(const std::string& name) {
    QUENCH_ASSIGN_OR_RETURN(TrialBuild build,
                            BuildTrial(graph_, options_, folder_->path(), name, kWho, context_));
    return Trial{std::move(build), {}};
  }

  static bool SameKernels(const CompileReport& a, const CompileReport& b) {
    return std::equal(
        a.kernels.begin(), a.kernels.end(), b.kernels.begin(), b.kernels.end(),
        [](const KernelReport& x, const KernelReport& y) { return x.candidate == y.candidate; });
  }

  absl::Status BuildTrials() {
    for (int rank = 0; rank < kMostRanks; ++rank) {
      context_.Report({"measure", "builds", rank, kMostRanks});
      options_.measured->rank = rank;
      const Clock::time_point begin = Clock::now();
      QUENCH_ASSIGN_OR_RETURN(Trial trial, Build(fmt::format("trial{}", rank)));
      if (rank > 0 && SameKernels(trial.report, trials_[0].report)) break;
      trials_.push_back(std::move(trial));
      if (Since(start_) + Since(begin) > seconds_ / 2) break;
    }
    options_.measured->rank = -1;
    return absl::OkStatus();
  }

  absl::Status Measure(const std::vector<Trial*>& trials, double seconds, const std::string& what) {
    const double room = std::max(0.0, seconds - (what == "kernels" ? Since(start_) : 0.0));
    const auto run = [&](size_t i, bool counts) {
      return counts ? MeasureOnce(*trials[i]) : trials[i]->artifact->Profile(inputs_).status();
    };
    return RunInTurn(trials.size(), room, what, run, context_).status();
  }

  absl::Status MeasureOnce(Trial& trial) {
    QUENCH_ASSIGN_OR_RETURN(const std::vector<NodeTiming> nodes, trial.artifact->Profile(inputs_));
    double all = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      all += nodes[i].seconds;
      if (i < trial.report.kernels.size() && !trial.report.kernels[i].candidate.empty())
        times_[trial.report.kernels[i].candidate].push_back(nodes[i].seconds);
    }
    trial.runs.push_back(all);
    return absl::OkStatus();
  }

  std::map<std::string, double> Microseconds() const {
    std::map<std::string, double> microseconds;
    for (const auto& [candidate, times] : times_)
      microseconds[candidate] = 1e6 * LowerQuartile(times);
    return microseconds;
  }

  const Graph& graph_;
  CompileOptions options_;
  const CheckMode check_;  // of the build that is kept
  const double seconds_;
  const StepContext& context_;
  const Clock::time_point start_ = Clock::now();
  Emit emit_ = Emit::kByTarget;
  std::optional<TempDir> folder_;
  std::vector<Trial> trials_;
  std::vector<Tensor> inputs_;
  std::map<std::string, std::vector<double>> times_;  // seconds, by candidate
};

}  // namespace

absl::StatusOr<CompileReport> CompileMeasured(const Graph& graph, const CompileOptions& options,
                                              const std::filesystem::path& library,
                                              const std::filesystem::path& header,
                                              const StepContext& context) {
  if (options.opt_level != 4) return Compile(graph, options, library, header, context);
  QUENCH_RETURN_IF_ERROR(CheckOptions(options));  // before anything is built
  return Measurer(graph, options, context).Run(library, header);
}

}  // namespace quench::codegen
