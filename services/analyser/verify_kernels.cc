#include <cmath>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "services/analyser/analyser.h"
#include "services/analyser/verify_parts.h"

namespace quench::analyser {

absl::StatusOr<Oracle> Oracle::Create(const Graph& graph, const VerifyOptions& options,
                                      const std::filesystem::path& folder,
                                      const StepContext& context) {
  Oracle oracle(graph);
  oracle.kind_ = options.oracle;
  if (oracle.kind_.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const ModelReport report,
                            Analyse(graph, graph, {.sizes = options.sizes}, context));
    oracle.kind_ = report.work.macs <= kInterpreterMacs ? "interpreter" : "reference";
  }
  if (oracle.kind_ == "interpreter") return oracle;
  if (!options.build_reference) return Unsupported("the reference oracle needs a build function");
  const std::filesystem::path library = folder / "reference.so";
  QUENCH_RETURN_IF_ERROR(
      Annotate(options.build_reference(graph, library, context), "reference build"));
  QUENCH_ASSIGN_OR_RETURN(oracle.artifact_, Artifact::Open(library, options.threads));
  return oracle;
}

absl::StatusOr<std::vector<Tensor>> Oracle::Run(std::span<const Tensor> inputs,
                                                const TensorSink& sink,
                                                const StepContext& context) const {
  if (artifact_ != nullptr) return artifact_->Run(inputs, context, sink);
  ops::EvaluateOptions options;
  options.on_value = sink;
  return ops::Evaluate(*graph_, inputs, context, options);
}

void Worsen(ValueError& value, double error) {
  value.error = std::isnan(error) || std::isnan(value.error) ? NAN : std::max(value.error, error);
}

absl::Status CompareLayers(Artifact& twin, const Oracle& oracle,
                           const std::map<std::string, ValueError>& tolerances,
                           std::span<const Tensor> inputs, LayersReport& report,
                           const StepContext& context) {
  report.compared = true;
  std::map<std::string, Tensor> expected;
  const auto keep = [&](const std::string& name, const Tensor& tensor) { expected[name] = tensor; };
  QUENCH_RETURN_IF_ERROR(oracle.Run(inputs, keep, context).status());
  double worst = 0;
  const auto compare = [&](const std::string& name, const Tensor& tensor) {
    const auto found = expected.find(name);
    const auto rule = tolerances.find(name);
    if (found == expected.end() || rule == tolerances.end() ||
        found->second.dims() != tensor.dims() || found->second.dtype() != tensor.dtype()) {
      report.without_counterpart.push_back(name);
      return;
    }
    ValueError value = rule->second;
    value.error = RelativeError(tensor, found->second);
    expected.erase(found);
    report.values.push_back(value);
    if (value.passed()) return;
    if (report.first.empty()) report.first = name;
    const double size = std::isnan(value.error) ? INFINITY : value.error;
    if (report.worst.empty() || size > worst) {
      worst = size;
      report.worst = name;
    }
  };
  return twin.Run(inputs, context, compare).status();
}

}  // namespace quench::analyser
