#include "common/base/status.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"
#include "services/cli/remote/steps.h"

namespace quench::cli {

namespace pb = ::quench::gateway::v1;

absl::StatusOr<Graph> ModuleThere(const ModuleJob& job, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  QUENCH_ASSIGN_OR_RETURN(const pb::BatchModel model, UploadModel(job.model, *client, context));
  pb::WorkflowSpec spec;
  ModuleSource module = AddImport(spec, "import", model);
  if (job.stage == "imported") module.port = pb::PORT_IMPORTED;
  importer::v1::TransformRequest request;
  *request.mutable_options() = PassesOf(job.model);
  const auto transform = [&](const std::string& name, const std::vector<std::string>& passes) {
    request.mutable_passes()->Assign(passes.begin(), passes.end());
    module = AddModuleStep(spec, name, &pb::StepSpec::mutable_transform, module, request);
  };
  if (job.model.batch != 0) transform("batch", {"set_batch_size"});
  if (job.stage == "codegen-ready") transform("transform", {});
  if (!job.passes.empty()) transform("passes", job.passes);
  if (module.step.empty()) {  // an IR module, as it is
    QUENCH_ASSIGN_OR_RETURN(importer::Imported loaded, LoadModel(job.model, context));
    return std::move(loaded.canonical);
  }
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  const char* output = module.port == pb::PORT_CANONICAL  ? "canonical"
                       : module.port == pb::PORT_IMPORTED ? "imported"
                                                          : "module";
  return DownloadModule(workflow, module.step, output, *client, context);
}

}  // namespace quench::cli
