// Builds of a model that run in turn on this machine, to be timed against each other.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/runner/runner.h"
#include "services/codegen/options/options.h"
#include "services/codegen/report.h"

namespace quench::codegen {

struct TrialBuild {
  CompileReport report;
  std::unique_ptr<Artifact> artifact;  // on one thread
};

// INVALID_ARGUMENT where what `options` make cannot be timed here: it has several variants, or is an archive
// because of system-lib. Messages begin with `who`, the option that wants times.
absl::Status CheckTrialTarget(const CompileOptions& options, const std::string& who);
// A build in `folder`, whose file is gone when this returns. `name`: loaders take libraries of one name for
// one library. INVALID_ARGUMENT where the target's code does not run here.
absl::StatusOr<TrialBuild> BuildTrial(const Graph& graph, const CompileOptions& options,
                                      const std::filesystem::path& folder, const std::string& name,
                                      const std::string& who, const StepContext& context);
// Random inputs at typical sizes.
absl::StatusOr<std::vector<Tensor>> TypicalInputs(const Graph& graph, const Artifact& artifact);

// Cancelled as `context`, without its progress.
StepContext WithoutProgress(const StepContext& context);
// Calls run(0) to run(count - 1) round after round, five rounds at least, until `seconds` have passed. Each is
// called once before, to be warm: `run` is told whether its time counts. The number of rounds.
absl::StatusOr<int> RunInTurn(size_t count, double seconds, const std::string& what,
                              const std::function<absl::Status(size_t, bool counts)>& run,
                              const StepContext& context);
// Robust for times on a machine that others use too: disturbances only make a run longer.
double LowerQuartile(std::vector<double> times);

}  // namespace quench::codegen
