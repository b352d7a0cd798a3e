#include "common/base/status.h"
#include "services/cli/local_store.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"
#include "services/cli/remote/quantize.h"
#include "services/codegen/options_proto.h"
#include "services/codegen/package.h"
#include "services/codegen/report_proto.h"

namespace quench::cli {
namespace {

gateway::v1::WorkflowSpec SpecOf(const CompileJob& job, gateway::v1::BatchModel model) {
  gateway::v1::WorkflowSpec spec;
  spec.set_title("compile " +
                 std::filesystem::path(job.model.model).filename().string().substr(0, 200));
  gateway::v1::CompileBatch& batch = *spec.mutable_compile();
  *batch.add_models() = std::move(model);
  *batch.add_targets() = TargetOf(job.options.target, job.options.host_target);
  gateway::v1::CompileChoice& choice = *batch.add_choices();
  choice.set_name("options");
  *choice.mutable_passes() = PassesOf(job.model, job.stop_after);
  choice.set_uuid(job.options.uuid);
  *choice.mutable_compile_options() = codegen::ToProto(job.options);
  return spec;
}

}  // namespace

absl::StatusOr<Made> CompileThere(const CompileJob& job, const std::filesystem::path& folder,
                                  const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  QUENCH_ASSIGN_OR_RETURN(gateway::v1::BatchModel model, UploadModel(job.model, *client, context));
  // The last step before compilation.
  const std::string transform =
      model.name() + "/options/" + (job.quantize != nullptr ? "optimise" : "transform");
  gateway::v1::WorkflowSpec spec = SpecOf(job, model);
  if (job.quantize != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(*spec.mutable_compile()->mutable_choices(0)->mutable_quantize(),
                            ChoiceOf(*job.quantize, job.model, *client, context));
  }
  const codegen::v1::Target& target = spec.compile().targets(0);
  const std::string compile = fmt::format("{}/options/{}/compile", model.name(),
                                          target.label().empty() ? target.name() : target.label());
  QUENCH_ASSIGN_OR_RETURN(const gateway::v1::Workflow workflow, RunModels(spec, *client, context));
  Made made;
  if (job.quantize != nullptr) {
    QUENCH_RETURN_IF_ERROR(TellPreparation(workflow, model.name() + "/options/", *client, context));
    QUENCH_ASSIGN_OR_RETURN(
        made.quantized,
        DownloadQuantization(workflow, model.name() + "/options",
                             spec.compile().choices(0).quantize(), *client, context));
  }
  if (job.wants_graph) {
    QUENCH_ASSIGN_OR_RETURN(made.graph,
                            DownloadModule(workflow, transform, "module", *client, context));
  }
  if (!job.stop_after.empty()) return made;
  QUENCH_ASSIGN_OR_RETURN(const auto report, DownloadMessage<codegen::v1::CompileReport>(
                                                 workflow, compile, "report", *client, context));
  made.report = codegen::FromProto(report);
  std::string last = compile;
  if (!job.options.uuid.empty()) {
    last.replace(last.rfind('/') + 1, std::string::npos, "package");
    QUENCH_ASSIGN_OR_RETURN(made.report->uuid, codegen::NormalUuid(job.options.uuid));
  }
  QUENCH_ASSIGN_OR_RETURN(const Digest library, OutputOf(workflow, last, "library"));
  QUENCH_ASSIGN_OR_RETURN(const Digest header, OutputOf(workflow, last, "header"));
  QUENCH_RETURN_IF_ERROR(
      client->DownloadFile(library, folder / LibraryName(job.options.emit), context));
  QUENCH_RETURN_IF_ERROR(client->DownloadFile(header, folder / "model.h", context));
  return made;
}

}  // namespace quench::cli
