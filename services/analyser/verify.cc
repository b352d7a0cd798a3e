#include "services/analyser/verify.h"

#include <algorithm>
#include <cmath>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/passes/cut.h"
#include "common/runner/open_sizes.h"
#include "services/analyser/verify_magnitudes.h"
#include "services/analyser/verify_rewrites.h"

namespace quench::analyser {
namespace {

// Ranges are of this model's inputs, and may be of other values, too.
absl::Status CheckRanges(const Graph& graph, const VerifyOptions& options) {
  const bool known = std::ranges::any_of(
      graph.inputs, [&](ValueId id) { return options.ranges.contains(graph.value(id).name); });
  if (options.ranges.empty() || known) return absl::OkStatus();
  return InvalidArgument("the statistics have no range of an input of the model, as of `{}`",
                         graph.inputs.empty() ? "" : graph.value(graph.inputs[0]).name);
}

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

// The graph that the library's code computes, in single nodes: a group computes what its nodes do.
absl::StatusOr<Graph> Rewritten(const Graph& canonical, const VerifyOptions& options,
                                const StepContext& context) {
  passes::PassOptions how = options.passes;
  how.opt_level = std::min(how.opt_level, 2);
  how.keep_values = false;
  how.stop_after.clear();
  QUENCH_ASSIGN_OR_RETURN(Graph graph, passes::RunPipeline(canonical, how, context));
  return passes::RunCodegenPasses(std::move(graph), how, context);
}

// Runs library and oracle on one input after the other.
class KernelCheck {
 public:
  KernelCheck(Artifact& artifact, const std::string& oracle,
              const std::map<std::string, ValueError>& tolerances)
      : artifact_(artifact) {
    report_.oracle = oracle;
    for (const ArtifactTensor& output : artifact.outputs())
      report_.outputs.push_back(tolerances.at(output.name));
  }

  // The library's outputs.
  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs,
                                          const std::vector<Tensor>& expected,
                                          const StepContext& context) {
    QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> actual, artifact_.Run(inputs, context));
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double error = RelativeError(actual[i], expected[i]);
      Worsen(report_.outputs[i], error);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    if (worst > worst_ || worst_inputs_.empty()) worst_inputs_ = inputs;
    worst_ = std::max(worst_, worst);
    return actual;
  }

  KernelsReport Finish() {
    report_.passed = std::all_of(report_.outputs.begin(), report_.outputs.end(),
                                 [](const ValueError& value) { return value.passed(); });
    return report_;
  }
  const std::vector<Tensor>& worst_inputs() const { return worst_inputs_; }

 private:
  Artifact& artifact_;
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
    const auto open = [&](const std::string& device) {
      return Artifact::Open(library_, {options_.threads, device});
    };
    absl::StatusOr<std::unique_ptr<Artifact>> opened = open(options_.device);
    // Built for CPUs alone: the report says that layers ran there.
    if (!opened.ok() && !options_.device.empty()) opened = open("cpu");
    QUENCH_ASSIGN_OR_RETURN(artifact_, std::move(opened));
    return artifact_.get();
  }

 private:
  const Graph& graph_;
  const VerifyOptions& options_;
  const std::filesystem::path library_;
  std::unique_ptr<Artifact> artifact_;
};

// Inputs, and what the oracle makes of them.
struct Sample {
  std::vector<Tensor> inputs, expected;
};

// Inputs that the model takes; where rules say too little of it, integers that index any table.
absl::StatusOr<Sample> Draw(const Graph& model, const Oracle& oracle, const VerifyOptions& options,
                            int sample, const StepContext& context) {
  const uint64_t seed = options.seed + static_cast<uint64_t>(sample);
  QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> inputs,
                          RandomInputs(model, seed, options.sizes, options.ranges));
  absl::StatusOr<std::vector<Tensor>> expected = oracle.Run(inputs, {}, context);
  if (!expected.ok() && context.Check().ok()) {
    QUENCH_ASSIGN_OR_RETURN(inputs, RandomInputs(InputsOf(model), seed, options.sizes, kAnyIndex));
    expected = oracle.Run(inputs, {}, context);
  }
  QUENCH_RETURN_IF_ERROR(expected.status());
  return Sample{std::move(inputs), *std::move(expected)};
}

// The two sides of the comparison.
struct Sides {
  const Graph& model;
  const Graph& rewritten;
  const Oracle& oracle;
  Artifact& artifact;
  Twin& twin;
};

absl::StatusOr<MagnitudeReport> CheckMagnitude(
    const Sides& sides, const Graph& model, const MagnitudeLimits& limits,
    const std::vector<Tensor>& inputs, const VerifyOptions& options,
    const std::function<absl::Status(const Sample&)>& compare, const StepContext& context) {
  MagnitudeReport report;
  report.type = limits.type;
  const MagnitudeCheck check(model, limits, options);
  const absl::StatusOr<ScaledInputs> sample = check.Scale(inputs, context);
  if (absl::IsFailedPrecondition(sample.status())) {
    report.reason = MessageOf(sample.status());
    return report;
  }
  QUENCH_RETURN_IF_ERROR(sample.status());
  report.checked = true;
  report.given = !options.ranges.empty();
  report.exponent = sample->exponent;
  report.value = sample->value;
  report.magnitude = sample->magnitude;
  report.limit = sample->limit;
  if (report.given || (limits.type != DataType::kF16 && sample->exponent == 0)) return report;
  if (limits.type != DataType::kF16) {
    QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> expected,
                            sides.oracle.Run(sample->inputs, {}, context));
    QUENCH_RETURN_IF_ERROR(compare({sample->inputs, std::move(expected)}));
    return report;
  }
  QUENCH_RETURN_IF_ERROR(check.Compare(
      *sample, sides.artifact, Tolerances(sides.rewritten, options.tolerance), report, context));
  if (report.passed || !options.build_twin) return report;
  QUENCH_ASSIGN_OR_RETURN(Artifact* const shown, sides.twin.Get(context));
  QUENCH_ASSIGN_OR_RETURN(report.first, check.FirstNotFinite(*sample, *shown, context));
  return report;
}

// By narrow type. The interpreter computes the model, more than once.
absl::StatusOr<std::vector<MagnitudeReport>> CheckMagnitudes(
    const Sides& sides, const std::vector<Tensor>& inputs, const VerifyOptions& options,
    const std::function<absl::Status(const Sample&)>& compare, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Graph model, passes::ExpandLinear(sides.model));
  std::vector<MagnitudeReport> reports;
  for (const MagnitudeLimits& limits : LimitsOf(model, sides.rewritten)) {
    context.Report({"verify", "magnitudes", 0, 0});
    if (sides.oracle.kind() != "interpreter") {
      reports.emplace_back().type = limits.type;
      reports.back().reason =
          "the interpreter would run the model several times, and a reference build stands in for "
          "it";
      continue;
    }
    QUENCH_ASSIGN_OR_RETURN(reports.emplace_back(), CheckMagnitude(sides, model, limits, inputs,
                                                                   options, compare, context));
  }
  return reports;
}

}  // namespace

absl::StatusOr<VerifyReport> Verify(const Graph& canonical,
                                    const std::filesystem::path& artifact_path,
                                    const VerifyOptions& asked, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                          Artifact::Open(artifact_path, {asked.threads, asked.device}, asked.key));
  QUENCH_RETURN_IF_ERROR(CheckInterface(canonical, *artifact));
  VerifyOptions options = asked;
  QUENCH_ASSIGN_OR_RETURN(options.sizes, ChooseSizes(InputsOf(canonical), asked.sizes));
  QUENCH_RETURN_IF_ERROR(CheckRanges(canonical, options));
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
  KernelCheck kernels(*artifact, oracle.kind(), tolerances);
  const auto compare = [&](const Sample& sample) -> absl::Status {
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                            kernels.Run(sample.inputs, sample.expected, context));
    return rewrites.Add(sample.inputs, outputs, context);
  };
  std::vector<Tensor> first;
  for (int i = 0; i < options.samples; ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    context.Report({"verify", "", i, options.samples});
    QUENCH_ASSIGN_OR_RETURN(const Sample sample, Draw(canonical, oracle, options, i, context));
    QUENCH_RETURN_IF_ERROR(compare(sample));
    if (i == 0) first = sample.inputs;
  }
  VerifyReport report;
  report.sizes = options.sizes;
  report.device = artifact->device();
  QUENCH_ASSIGN_OR_RETURN(report.magnitudes,
                          CheckMagnitudes({canonical, rewritten, oracle, *artifact, twin}, first,
                                          options, compare, context));
  report.kernels = kernels.Finish();
  report.rewrites = rewrites.Finish();
  if (options.per_layer || (!report.kernels.passed && options.build_twin)) {
    LayersReport& layers = report.kernels.layers;
    QUENCH_ASSIGN_OR_RETURN(shown, twin.Get(context));
    layers.device = shown->device();
    QUENCH_RETURN_IF_ERROR(
        CompareLayers(*shown, oracle, tolerances, kernels.worst_inputs(), layers, context));
    if (layers.values.empty()) report.kernels.passed = false;  // nothing was looked at
  }
  report.passed = report.kernels.passed && (report.rewrites.passed || !report.rewrites.checked);
  for (MagnitudeReport& each : report.magnitudes) {
    if (each.checked && each.outputs.empty()) each.passed = report.passed;  // a sample among those
  }
  report.passed =
      report.passed && std::ranges::all_of(report.magnitudes, [](const MagnitudeReport& each) {
        return each.passed || !each.checked;
      });
  return report;
}

}  // namespace quench::analyser
