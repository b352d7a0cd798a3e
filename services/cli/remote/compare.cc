#include "services/analyser/compare.h"

#include "common/base/status.h"
#include "services/analyser/report_proto.h"
#include "services/cli/local_store.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"
#include "services/cli/remote/quantize.h"
#include "services/cli/remote/steps.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

// The library in `path`, or the step that builds what is in it.
struct LibrarySource {
  Digest given;
  std::string step;
};

absl::StatusOr<LibrarySource> AddLibrary(const CompareJob& job, const std::string& path,
                                         const std::string& name, pb::WorkflowSpec& spec,
                                         GatewayClient& client, const StepContext& context) {
  LibrarySource source;
  QUENCH_ASSIGN_OR_RETURN(const FileKind kind, KindOf(path));
  if (kind == FileKind::kArtifact) {
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> digests, client.UploadFiles({path}, context));
    source.given = digests[0];
    return source;
  }
  ModelOptions options = job.model;
  options.model = path;
  QUENCH_ASSIGN_OR_RETURN(const pb::BatchModel model, UploadModel(options, client, context));
  ModuleSource module = AddImport(spec, name + "/import", model);
  importer::v1::TransformRequest passes;
  *passes.mutable_options() = PassesOf(options);
  module = AddModuleStep(spec, name + "/transform", &pb::StepSpec::mutable_transform, module,
                         std::move(passes));
  codegen::v1::CompileRequest compile;
  *compile.mutable_target() = TargetOf("host");
  compile.mutable_options()->set_opt_level(3);
  compile.mutable_options()->set_check(codegen::v1::CHECK_NO);  // it is compared anyway
  *compile.mutable_options()->mutable_passes() = PassesOf(options);
  if (job.options.layers) {
    compile.mutable_options()->set_taps(true);
    compile.mutable_options()->set_opt_level(2);  // every value is to be seen: nothing is fused
  }
  source.step = AddModuleStep(spec, name + "/compile", &pb::StepSpec::mutable_compile, module,
                              std::move(compile))
                    .step;
  return source;
}

}  // namespace

absl::StatusOr<analyser::CompareReport> CompareThere(const CompareJob& job,
                                                     const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  pb::WorkflowSpec spec;
  LibrarySource reference;
  if (!job.expected_files) {
    QUENCH_ASSIGN_OR_RETURN(reference,
                            AddLibrary(job, job.model.model, "reference", spec, *client, context));
  }
  QUENCH_ASSIGN_OR_RETURN(const LibrarySource other,
                          AddLibrary(job, job.other, "other", spec, *client, context));
  pb::StepSpec* step = AddStep(spec, "compare");
  analyser::v1::CompareRequest* request = step->mutable_compare();
  SampleUploads uploads(*client, context);
  if (job.expected_files) {
    SampleOptions expected;
    expected.data = job.model.model;
    QUENCH_ASSIGN_OR_RETURN(*request->mutable_expected(), uploads.Upload(expected, {}));
  } else if (reference.step.empty()) {
    *request->mutable_reference_library() = reference.given;
  } else {
    Bind(step, pb::PORT_REFERENCE_LIBRARY, reference.step, pb::PORT_LIBRARY);
  }
  if (other.step.empty()) {
    *request->mutable_library() = other.given;
  } else {
    Bind(step, pb::PORT_LIBRARY, other.step, pb::PORT_LIBRARY);
  }
  request->set_device(job.options.device);
  request->set_layers(job.options.layers);
  request->set_threads(job.options.threads);
  if (job.options.tolerance) request->set_tolerance(*job.options.tolerance);
  QUENCH_ASSIGN_OR_RETURN(*request->mutable_samples(),
                          uploads.Upload(job.samples, job.options.labels));
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_ASSIGN_OR_RETURN(const auto result, DownloadMessage<analyser::v1::CompareResult>(
                                                 workflow, "compare", "result", *client, context));
  return analyser::FromProto(result);
}

}  // namespace quench::cli
