#include <fmt/format.h>

#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/rpc/errors.h"
#include "common/runner/inputs.h"
#include "common/steps/modules.h"
#include "common/steps/samples.h"
#include "services/analyser/infer.h"
#include "services/analyser/module_steps.h"
#include "services/analyser/report_proto.h"

namespace quench::analyser {
namespace {

using rpc::FieldError;

absl::StatusOr<InputSources> SourcesOf(const v1::InferRequest& request,
                                       const steps::Workplace& place) {
  InputSources sources;
  if (request.has_seed()) sources.seed = request.seed();
  QUENCH_ASSIGN_OR_RETURN(sources.sizes, SizesOf(request.sizes(), "sizes"));
  StatusCollector problems;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const v1::InferInput& input = request.inputs(i);
    const std::string field = fmt::format("inputs[{}]", i);
    const std::filesystem::path path = place.scratch / fmt::format("input{}.npy", i);
    QUENCH_RETURN_IF_ERROR(steps::LinkBlob(input.tensor(), path, place.blobs));
    absl::StatusOr<Tensor> tensor = ReadNpy(path);
    if (!tensor.ok()) {
      problems.Add(FieldError(field + ".tensor", MessageOf(tensor.status())));
    } else if (!sources.given.emplace(input.name(), *std::move(tensor)).second) {
      problems.Add(FieldError(field + ".name", fmt::format("`{}` is given twice", input.name())));
    }
  }
  if (!problems.ok()) return problems.Finish();
  return sources;
}

absl::StatusOr<std::vector<Tensor>> InputsFor(const v1::InferRequest& request, const Graph& graph,
                                              std::span<const ArtifactTensor> inputs,
                                              std::span<const ArtifactState> states,
                                              const steps::Workplace& place) {
  QUENCH_ASSIGN_OR_RETURN(InputSources sources, SourcesOf(request, place));
  sources.graph = &graph;
  absl::StatusOr<std::vector<Tensor>> filled =
      FillInputs(inputs, states, sources, "it in `inputs`, or a `seed`");
  if (!filled.ok()) return FieldError("inputs", MessageOf(filled.status()));
  return filled;
}

// The value's blobs, as they were asked for.
absl::Status Store(const v1::InferRequest& request, const Tensor& tensor,
                   const steps::Workplace& place, const StepContext& context,
                   v1::InferredValue& value) {
  if (request.store_tensors()) {
    const std::filesystem::path path = place.scratch / "value.npy";
    QUENCH_RETURN_IF_ERROR(WriteNpy(tensor, path));
    QUENCH_ASSIGN_OR_RETURN(*value.mutable_tensor(), steps::MoveFile(path, place.blobs, context));
  }
  if (request.store_images()) {
    const absl::StatusOr<std::string> png = FeatureMaps(tensor);
    if (!png.ok()) return absl::OkStatus();  // there is none of such a value
    QUENCH_ASSIGN_OR_RETURN(*value.mutable_image(), steps::StoreBytes(*png, place.blobs));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::InferResult> InferStep(const v1::InferRequest& request,
                                          const steps::Workplace& place,
                                          const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          steps::LoadModule(request.module(), "module", place.blobs));
  if (graph.stage == Stage::kImported)
    return FieldError("module", "is at stage `imported`, what runs is `canonical` or later");
  const InferOptions options{.ops = {request.operators().begin(), request.operators().end()},
                             .names = {request.names().begin(), request.names().end()},
                             .all = request.all()};
  std::map<std::string, v1::InferredValue> blobs;
  const ValueSink sink = [&](const InferredValue& value, const Tensor& tensor) {
    return Store(request, tensor, place, context, blobs[value.name]);
  };
  InferReport report;
  if (request.has_library()) {
    const std::filesystem::path path = place.scratch / "model.so";
    QUENCH_RETURN_IF_ERROR(steps::LinkBlob(request.library(), path, place.blobs));
    QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> library,
                            steps::OpenLibrary(path, "library", request.device()));
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                            InputsFor(request, graph, library->inputs(), library->states(), place));
    QUENCH_ASSIGN_OR_RETURN(report, InferLibrary(graph, *library, inputs, options, sink, context));
  } else {
    QUENCH_ASSIGN_OR_RETURN(
        const std::vector<Tensor> inputs,
        InputsFor(request, graph, InputsOf(graph), ArtifactStatesOf(graph), place));
    QUENCH_ASSIGN_OR_RETURN(report, Infer(graph, inputs, options, sink, context));
  }
  v1::InferResult result = ToProto(report);
  for (v1::InferredValue& value : *result.mutable_values()) {
    const auto stored = blobs.find(value.name());
    if (stored != blobs.end()) value.MergeFrom(stored->second);
  }
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_report_json(),
                          steps::StoreBytes(ToJson(report), place.blobs));
  return result;
}

}  // namespace quench::analyser
