#include "services/analyser/verify.h"

#include <algorithm>
#include <cmath>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/analyser/verify_rewrites.h"

namespace quench::analyser {
namespace {

absl::Status CheckInterface(const Graph& graph, const Artifact& artifact) {
  StatusCollector problems;
  const auto compare = [&](const char* what, const std::vector<ValueId>& ids,
                           const std::vector<ArtifactTensor>& tensors) {
    if (ids.size() != tensors.size()) {
      problems.Add(InvalidArgument("the library has {} {}s, the model {}", tensors.size(), what,
                                   ids.size()));
      return;
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      const Value& value = graph.value(ids[i]);
      if (value.name != tensors[i].name || value.type.dtype != tensors[i].dtype) {
        problems.Add(InvalidArgument("{} {} is `{}` ({}) in the library and `{}` ({}) in the model",
                                     what, i, tensors[i].name, DataTypeName(tensors[i].dtype),
                                     value.name, DataTypeName(value.type.dtype)));
      }
    }
  };
  compare("input", graph.inputs, artifact.inputs());
  compare("output", graph.outputs, artifact.outputs());
  return problems.Finish();
}

// What the library's code is made of, in single nodes: a group computes what its nodes do.
absl::StatusOr<Graph> Rewritten(const Graph& canonical, const VerifyOptions& options,
                                const StepContext& context) {
  passes::PassOptions how = options.passes;
  how.opt_level = std::min(how.opt_level, 2);
  how.keep_values = false;
  how.stop_after.clear();
  QUENCH_ASSIGN_OR_RETURN(Graph graph, passes::RunPipeline(canonical, how, context));
  return passes::RunCodegenPasses(std::move(graph), how, context);
}

constexpr uint64_t kManyIntegers = 8;  // below it, where a model takes that

// Runs library and oracle on one random input after the other.
class KernelCheck {
 public:
  KernelCheck(Artifact& artifact, const Oracle& oracle, const VerifyOptions& options,
              const std::map<std::string, ValueError>& tolerances)
      : artifact_(artifact), oracle_(oracle), options_(options) {
    report_.oracle = oracle.kind();
    for (const ArtifactTensor& output : artifact.outputs())
      report_.outputs.push_back(tolerances.at(output.name));
  }

  // Inputs and the library's outputs.
  absl::StatusOr<std::pair<std::vector<Tensor>, std::vector<Tensor>>> Run(
      int sample, const StepContext& context) {
    const auto draw = [&](uint64_t below) {
      return RandomInputs(artifact_.inputs(), options_.seed + static_cast<uint64_t>(sample),
                          options_.sizes, below);
    };
    QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> inputs, draw(kManyIntegers));
    absl::StatusOr<std::vector<Tensor>> result = oracle_.Run(inputs, {}, context);
    if (!result.ok() && context.Check().ok()) {  // an integer may be an index that is too large
      QUENCH_ASSIGN_OR_RETURN(inputs, draw(kAnyIndex));
      result = oracle_.Run(inputs, {}, context);
    }
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> expected, std::move(result));
    QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> actual, artifact_.Run(inputs, context));
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double error = RelativeError(actual[i], expected[i]);
      Worsen(report_.outputs[i], error);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    if (worst > worst_ || worst_inputs_.empty()) worst_inputs_ = inputs;
    worst_ = std::max(worst_, worst);
    return std::make_pair(std::move(inputs), std::move(actual));
  }

  KernelsReport Finish() {
    report_.passed = std::all_of(report_.outputs.begin(), report_.outputs.end(),
                                 [](const ValueError& value) { return value.passed(); });
    return report_;
  }
  const std::vector<Tensor>& worst_inputs() const { return worst_inputs_; }

 private:
  Artifact& artifact_;
  const Oracle& oracle_;
  const VerifyOptions& options_;
  KernelsReport report_;
  double worst_ = 0;
  std::vector<Tensor> worst_inputs_;
};

// The library's twin with taps, where something wants to look inside; else null.
class Twin {
 public:
  Twin(const Graph& graph, const VerifyOptions& options, const std::filesystem::path& folder)
      : graph_(graph), options_(options), library_(folder / "taps.so") {}

  absl::StatusOr<Artifact*> Get(const StepContext& context) {
    if (artifact_ != nullptr) return artifact_.get();
    if (!options_.build_twin) return Unsupported("comparing layers needs a build function");
    QUENCH_RETURN_IF_ERROR(Annotate(options_.build_twin(graph_, library_, context), "tap build"));
    QUENCH_ASSIGN_OR_RETURN(artifact_, Artifact::Open(library_, options_.threads));
    return artifact_.get();
  }

 private:
  const Graph& graph_;
  const VerifyOptions& options_;
  const std::filesystem::path library_;
  std::unique_ptr<Artifact> artifact_;
};

}  // namespace

absl::StatusOr<VerifyReport> Verify(const Graph& canonical,
                                    const std::filesystem::path& artifact_path,
                                    const VerifyOptions& options, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                          Artifact::Open(artifact_path, options.threads, options.key));
  QUENCH_RETURN_IF_ERROR(CheckInterface(canonical, *artifact));
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  QUENCH_ASSIGN_OR_RETURN(const Graph rewritten, Rewritten(canonical, options, context));
  QUENCH_ASSIGN_OR_RETURN(const Oracle oracle,
                          Oracle::Create(rewritten, options, folder.path(), context));
  const auto tolerances = Tolerances(rewritten, options.tolerance);
  Twin twin(canonical, options, folder.path());
  Artifact* shown = nullptr;
  if (options.build_twin && RewriteCheck::NeedsTwin(canonical)) {
    QUENCH_ASSIGN_OR_RETURN(shown, twin.Get(context));
  }
  QUENCH_ASSIGN_OR_RETURN(RewriteCheck rewrites,
                          RewriteCheck::Create(canonical, rewritten, options, shown));
  KernelCheck kernels(*artifact, oracle, options, tolerances);
  for (int sample = 0; sample < options.samples; ++sample) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    context.Report({"verify", "", sample, options.samples});
    QUENCH_ASSIGN_OR_RETURN(const auto run, kernels.Run(sample, context));
    QUENCH_RETURN_IF_ERROR(rewrites.Add(run.first, run.second, context));
  }
  VerifyReport report{false, kernels.Finish(), rewrites.Finish()};
  if (options.per_layer || (!report.kernels.passed && options.build_twin)) {
    LayersReport& layers = report.kernels.layers;
    QUENCH_ASSIGN_OR_RETURN(shown, twin.Get(context));
    QUENCH_RETURN_IF_ERROR(
        CompareLayers(*shown, oracle, tolerances, kernels.worst_inputs(), layers, context));
    if (layers.values.empty()) report.kernels.passed = false;  // nothing was looked at
  }
  report.passed = report.kernels.passed && (report.rewrites.passed || !report.rewrites.checked);
  return report;
}

}  // namespace quench::analyser
