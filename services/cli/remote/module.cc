#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"
#include "services/analyser/report_proto.h"
#include "services/cli/input_flags.h"
#include "services/cli/local_store.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"
#include "services/cli/remote/steps.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

// Steps that lead to the module of a job. `prefix`: of their names.
absl::StatusOr<ModuleSource> AddModule(pb::WorkflowSpec& spec, const ModuleJob& job,
                                       GatewayClient& client, const StepContext& context,
                                       const std::string& prefix = "") {
  QUENCH_ASSIGN_OR_RETURN(const pb::BatchModel model, UploadModel(job.model, client, context));
  ModuleSource module = AddImport(spec, prefix + "import", model);
  if (job.stage == "imported") module.port = pb::PORT_IMPORTED;
  importer::v1::TransformRequest request;
  *request.mutable_options() = PassesOf(job.model);
  const auto transform = [&](const std::string& name, const std::vector<std::string>& passes) {
    request.mutable_passes()->Assign(passes.begin(), passes.end());
    module = AddModuleStep(spec, prefix + name, &pb::StepSpec::mutable_transform, module, request);
  };
  if (job.model.batch != 0) transform("batch", {"set_batch_size"});
  if (job.stage == "codegen-ready") transform("transform", {});
  if (!job.passes.empty()) transform("passes", job.passes);
  return module;
}

void AddSizes(const std::map<std::string, int64_t>& sizes,
              google::protobuf::RepeatedPtrField<step::v1::SymbolSize>* out) {
  for (const auto& [symbol, size] : sizes) {
    step::v1::SymbolSize* added = out->Add();
    added->set_symbol(symbol);
    added->set_size(size);
  }
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
  AddSizes(options.sizes, request.mutable_sizes());
  AddModuleStep(spec, "nodes", &pb::StepSpec::mutable_introspect, module, std::move(request));
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_ASSIGN_OR_RETURN(const auto facts, DownloadMessage<analyser::v1::ModuleFacts>(
                                                workflow, "nodes", "report", *client, context));
  return analyser::FromProto(facts);
}

absl::StatusOr<analyser::ModuleDiff> DiffThere(const ModuleJob& job, const std::string& other,
                                               const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  pb::WorkflowSpec spec;
  QUENCH_ASSIGN_OR_RETURN(const ModuleSource reference,
                          AddModule(spec, job, *client, context, "reference/"));
  ModelOptions other_model = job.model;
  other_model.model = other;
  QUENCH_ASSIGN_OR_RETURN(
      const ModuleSource module,
      AddModule(spec, {job.gateway, other_model, job.stage}, *client, context, "other/"));
  analyser::v1::DiffRequest request;
  if (reference.step.empty()) *request.mutable_reference() = reference.given;
  AddModuleStep(spec, "diff", &pb::StepSpec::mutable_diff, module, std::move(request));
  if (!reference.step.empty()) {
    pb::StepSpec* step = spec.mutable_steps()->mutable_steps(spec.steps().steps_size() - 1);
    Bind(step, pb::PORT_REFERENCE, reference.step, reference.port);
  }
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_ASSIGN_OR_RETURN(const auto result, DownloadMessage<analyser::v1::DiffResult>(
                                                 workflow, "diff", "result", *client, context));
  return analyser::FromProto(result.diff());
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

namespace {

// Digests of tensors that are uploaded together, as files; in their order.
template <typename Map>
absl::StatusOr<std::vector<Digest>> UploadTensors(const Map& tensors, GatewayClient& client,
                                                  const StepContext& context) {
  if (tensors.empty()) return std::vector<Digest>();
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  std::vector<std::filesystem::path> files;
  for (const auto& [name, tensor] : tensors) {
    files.push_back(folder.path() / fmt::format("{}.npy", files.size()));
    QUENCH_RETURN_IF_ERROR(WriteNpy(tensor, files.back()));
  }
  return client.UploadFiles(files, context);
}

absl::Status AddInputs(const InputSources& sources, GatewayClient& client,
                       analyser::v1::InferRequest& request, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                          UploadTensors(sources.given, client, context));
  size_t next = 0;
  for (const auto& [name, tensor] : sources.given) {
    analyser::v1::InferInput* input = request.add_inputs();
    input->set_name(name);
    *input->mutable_tensor() = digests[next++];
  }
  return absl::OkStatus();
}

void SetSizes(int64_t m, int64_t n, int64_t k, analyser::v1::ProductSizes* sizes) {
  sizes->set_m(m);
  sizes->set_n(n);
  sizes->set_k(k);
}

absl::Status Download(const Digest& digest, const std::filesystem::path& path,
                      GatewayClient& client, const StepContext& context) {
  if (digest.hash().empty()) return absl::OkStatus();
  return client.DownloadFile(digest, path, context);
}

// Requirements of a tap build for `target`, and that the inference waits for it.
void AddTapBuild(pb::WorkflowSpec& spec, const InferJob& job, const ModuleSource& module) {
  importer::v1::TransformRequest passes;
  *passes.mutable_options() = PassesOf(job.model);
  passes.mutable_options()->clear_batch();  // it is set
  const ModuleSource ready =
      AddModuleStep(spec, "transform", &pb::StepSpec::mutable_transform, module, std::move(passes));
  codegen::v1::CompileRequest compile;
  *compile.mutable_target() = TargetOf(job.target);
  compile.mutable_options()->set_opt_level(3);
  compile.mutable_options()->set_taps(true);
  compile.mutable_options()->set_tap_values(codegen::v1::TAP_VALUES_RUNNING_CODE);
  AddModuleStep(spec, "taps", &pb::StepSpec::mutable_compile, ready, std::move(compile));
}

}  // namespace

absl::StatusOr<analyser::Tiled> TileThere(const TileJob& job, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  pb::WorkflowSpec spec;
  analyser::v1::TileRequest request;
  SetSizes(job.limits.m, job.limits.n, job.limits.k, request.mutable_limits());
  request.set_samples(job.proof.samples);
  request.set_seed(job.proof.seed);
  request.set_tolerance(job.proof.tolerance);
  if (job.gemm) {
    SetSizes((*job.gemm)[0], (*job.gemm)[2], (*job.gemm)[1], request.mutable_gemm());
    pb::StepSpec* step = spec.mutable_steps()->add_steps();
    step->set_name("tile");
    *step->mutable_tile() = std::move(request);
  } else {
    QUENCH_ASSIGN_OR_RETURN(const ModuleSource module,
                            AddModule(spec, {job.gateway, job.model}, *client, context));
    AddModuleStep(spec, "tile", &pb::StepSpec::mutable_tile, module, std::move(request));
  }
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_ASSIGN_OR_RETURN(const auto result, DownloadMessage<analyser::v1::TileResult>(
                                                 workflow, "tile", "result", *client, context));
  analyser::Tiled tiled;
  tiled.report = analyser::FromProto(result.report());
  QUENCH_ASSIGN_OR_RETURN(tiled.graph,
                          DownloadModule(workflow, "tile", "module", *client, context));
  return tiled;
}

absl::StatusOr<analyser::Edited> EditThere(const EditJob& job, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  pb::WorkflowSpec spec;
  QUENCH_ASSIGN_OR_RETURN(const ModuleSource module,
                          AddModule(spec, {job.gateway, job.model}, *client, context));
  analyser::v1::EditRequest request;
  request.set_script(job.script);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                          UploadTensors(job.files, *client, context));
  size_t next = 0;
  for (const auto& [name, tensor] : job.files) {
    analyser::v1::EditFile* file = request.add_files();
    file->set_file(name.first);
    file->set_array(name.second);
    *file->mutable_tensor() = digests[next++];
  }
  AddModuleStep(spec, "edit", &pb::StepSpec::mutable_edit, module, std::move(request));
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_ASSIGN_OR_RETURN(const auto result, DownloadMessage<analyser::v1::EditResult>(
                                                 workflow, "edit", "result", *client, context));
  analyser::Edited edited;
  edited.report = analyser::FromProto(result.report());
  QUENCH_ASSIGN_OR_RETURN(edited.graph,
                          DownloadModule(workflow, "edit", "module", *client, context));
  return edited;
}

absl::StatusOr<analyser::InferReport> InferThere(const InferJob& job, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  pb::WorkflowSpec spec;
  QUENCH_ASSIGN_OR_RETURN(const ModuleSource module,
                          AddModule(spec, {job.gateway, job.model}, *client, context));
  if (!job.target.empty()) AddTapBuild(spec, job, module);
  analyser::v1::InferRequest request;
  QUENCH_RETURN_IF_ERROR(AddInputs(job.sources, *client, request, context));
  if (job.sources.seed) request.set_seed(*job.sources.seed);
  AddSizes(job.sources.sizes, request.mutable_sizes());
  request.mutable_operators()->Assign(job.options.ops.begin(), job.options.ops.end());
  request.mutable_names()->Assign(job.options.names.begin(), job.options.names.end());
  request.set_all(job.options.all);
  request.set_store_tensors(!job.save.empty());
  request.set_store_images(job.pictures);
  request.set_device(job.device);
  AddModuleStep(spec, "infer", &pb::StepSpec::mutable_infer, module, std::move(request));
  if (!job.target.empty()) {
    pb::StepSpec* step = spec.mutable_steps()->mutable_steps(spec.steps().steps_size() - 1);
    Bind(step, pb::PORT_LIBRARY, "taps", pb::PORT_LIBRARY);
  }
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_ASSIGN_OR_RETURN(const auto result, DownloadMessage<analyser::v1::InferResult>(
                                                 workflow, "infer", "result", *client, context));
  if (!job.save.empty()) {
    std::error_code error;
    std::filesystem::create_directories(job.save, error);
    if (error) return ErrnoStatus(error.value(), "create folder", job.save);
    FileNames files;
    for (const analyser::v1::InferredValue& value : result.values()) {
      const std::string path = std::filesystem::path(job.save) / files.Of(value.name());
      QUENCH_RETURN_IF_ERROR(Download(value.tensor(), path + ".npy", *client, context));
      QUENCH_RETURN_IF_ERROR(Download(value.image(), path + ".png", *client, context));
    }
  }
  return analyser::FromProto(result);
}

}  // namespace quench::cli
