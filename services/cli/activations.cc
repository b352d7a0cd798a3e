#include "services/cli/activations.h"

#include "common/base/status.h"
#include "common/runner/inputs.h"
#include "services/analyser/infer.h"
#include "services/cli/remote.h"
#include "services/cli/taps.h"

namespace quench::cli {
namespace {

absl::StatusOr<analyser::InferReport> RunHere(const ModelOptions& model, InputSources sources,
                                              const analyser::InferOptions& options,
                                              const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported imported, LoadModel(model, context));
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          WithBatch(std::move(imported.canonical), model, context));
  sources.graph = &graph;
  TapBuild taps(graph);
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path library, taps.Library(context));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact, Artifact::Open(library));
  QUENCH_ASSIGN_OR_RETURN(
      const std::vector<Tensor> inputs,
      FillInputs(artifact->inputs(), artifact->states(), sources, InputFlags::kHow));
  const analyser::ValueSink ignored = [](const analyser::InferredValue&, const Tensor&) {
    return absl::OkStatus();
  };
  return analyser::InferLibrary(graph, *artifact, inputs, options, ignored, context);
}

}  // namespace

absl::StatusOr<std::vector<analyser::ActivationReport>> ActivationsOf(GatewayOptions& gateway,
                                                                      const ModelOptions& model,
                                                                      const InputFlags& inputs,
                                                                      const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const InputSources sources, SourcesOf(inputs, {}));
  analyser::InferOptions options;
  options.all = true;
  const InferJob job{gateway, model, sources, options, "", "", false};
  QUENCH_ASSIGN_OR_RETURN(
      const analyser::InferReport report,
      UsesGateway(gateway) ? InferThere(job, context) : RunHere(model, sources, options, context));
  std::vector<analyser::ActivationReport> activations;
  for (const analyser::InferredValue& value : report.values)
    activations.push_back({value.name, value.type, value.node, value.statistics});
  return activations;
}

}  // namespace quench::cli
