#include "common/base/status.h"
#include "services/analyser/report_proto.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"
#include "services/cli/remote/steps.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

// Steps that lead to the module of a job.
absl::StatusOr<ModuleSource> AddModule(pb::WorkflowSpec& spec, const ModuleJob& job,
                                       GatewayClient& client, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const pb::BatchModel model, UploadModel(job.model, client, context));
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
  return module;
}

}  // namespace

absl::StatusOr<Graph> ModuleThere(const ModuleJob& job, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  pb::WorkflowSpec spec;
  QUENCH_ASSIGN_OR_RETURN(const ModuleSource module, AddModule(spec, job, *client, context));
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

absl::StatusOr<analyser::ModuleFacts> IntrospectThere(const ModuleJob& job,
                                                      const analyser::NodesOptions& options,
                                                      const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  pb::WorkflowSpec spec;
  QUENCH_ASSIGN_OR_RETURN(const ModuleSource module, AddModule(spec, job, *client, context));
  analyser::v1::IntrospectRequest request;
  request.mutable_operators()->Assign(options.ops.begin(), options.ops.end());
  request.mutable_names()->Assign(options.names.begin(), options.names.end());
  for (const auto& [symbol, size] : options.sizes) {
    step::v1::SymbolSize* added = request.add_sizes();
    added->set_symbol(symbol);
    added->set_size(size);
  }
  AddModuleStep(spec, "nodes", &pb::StepSpec::mutable_introspect, module, std::move(request));
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_ASSIGN_OR_RETURN(const auto facts, DownloadMessage<analyser::v1::ModuleFacts>(
                                                workflow, "nodes", "report", *client, context));
  return analyser::FromProto(facts);
}

absl::StatusOr<PartitionedThere> PartitionThere(const PartitionJob& job,
                                                const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  pb::WorkflowSpec spec;
  QUENCH_ASSIGN_OR_RETURN(const ModuleSource module,
                          AddModule(spec, {job.gateway, job.model}, *client, context));
  analyser::v1::PartitionRequest request;
  request.set_inline_parts(job.inline_parts);
  if (!job.inline_parts) {
    request.set_backend(job.backend);
    request.mutable_operators()->Assign(job.operators.begin(), job.operators.end());
    analyser::v1::PartitionOptions& options = *request.mutable_options();
    options.set_keep_no_mac_subgraphs(!job.options.remove_no_mac_subgraphs);
    options.set_keep_batch_matmul(!job.options.simplify_batch_matmul);
    options.set_keep_scalar_add(!job.options.simplify_scalar_add);
    options.set_keep_stacks(!job.options.remove_stacks);
    options.set_min_nodes(job.options.min_nodes);
  }
  AddModuleStep(spec, "partition", &pb::StepSpec::mutable_partition, module, std::move(request));
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_ASSIGN_OR_RETURN(const auto result,
                          DownloadMessage<analyser::v1::PartitionResult>(
                              workflow, "partition", "result", *client, context));
  PartitionedThere there;
  there.inlined = result.inlined();
  there.partitioned.report = analyser::FromProto(result.report());
  QUENCH_ASSIGN_OR_RETURN(there.partitioned.graph,
                          DownloadModule(workflow, "partition", "module", *client, context));
  return there;
}

}  // namespace quench::cli
