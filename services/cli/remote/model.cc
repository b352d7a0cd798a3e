#include "services/cli/remote/model.h"

#include "common/base/status.h"
#include "common/steps/modules.h"
#include "services/cli/colour.h"
#include "services/codegen/codegen.h"
#include "services/codegen/targets/resolve.h"
#include "services/importer/graph/external_files.h"
#include "services/importer/importer.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

// Step names are of letters, digits, `_`, `-` and `.`.
constexpr char kModelName[] = "model";

absl::StatusOr<importer::v1::ImportOptions> ImportOptionsProto(
    const ModelOptions& options, const importer::ImportOptions& parsed) {
  importer::v1::ImportOptions message;
  for (const auto& [input, dims] : parsed.shapes) {
    importer::v1::InputShape* shape = message.add_shapes();
    shape->set_input(input);
    shape->mutable_dims()->Assign(dims.begin(), dims.end());
  }
  for (const auto& [symbol, range] : parsed.dims) {
    importer::v1::SymbolRange* added = message.add_dims();
    added->set_symbol(symbol);
    added->set_min(range.first);
    added->set_max(range.second);
  }
  for (const auto& [input, dtype] : parsed.dtypes) {
    importer::v1::InputType* type = message.add_types();
    type->set_input(input);
    type->set_element_type(static_cast<ir::v1::ElementType>(dtype));
  }
  message.mutable_no_freeze()->Assign(parsed.no_freeze.begin(), parsed.no_freeze.end());
  message.mutable_convert_config()->insert(parsed.convert_config.begin(),
                                           parsed.convert_config.end());
  message.set_opset(options.opset);
  message.mutable_outputs()->Assign(options.outputs.begin(), options.outputs.end());
  message.mutable_inputs()->Assign(options.inputs.begin(), options.inputs.end());
  message.set_signature(parsed.signature);
  message.set_default_type(static_cast<ir::v1::ElementType>(parsed.default_dtype));
  message.set_keep_quantized_weight(parsed.keep_quantized_weight);
  if (!parsed.layout.empty())
    message.set_layout(parsed.layout == "last" ? importer::v1::LAYOUT_CHANNELS_LAST
                                               : importer::v1::LAYOUT_CHANNELS_FIRST);
  return message;
}

std::map<std::string, std::string> MetadataOf(const ir::v1::Module& module) {
  std::map<std::string, std::string> metadata;
  for (const ir::v1::Metadata& each : module.graph().metadata())
    metadata[each.key()] = each.value();
  return metadata;
}

std::filesystem::path ExternalRoot(const ModelOptions& options, const std::filesystem::path& file) {
  if (!options.external_root.empty()) return options.external_root;
  return file.parent_path();
}

absl::Status AddModel(const ModelOptions& options, GatewayClient& client,
                      const StepContext& context, bool* was_read, pb::BatchModel& model) {
  QUENCH_ASSIGN_OR_RETURN(const importer::ImportOptions parsed, ImportOptionsOf(options));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<std::string> locations,
                          importer::ExternalLocations(options.model, parsed));
  // A saved model is its folder's file, and the others of it external data.
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path model_file,
                          importer::ModelFileOf(options.model));
  std::vector<std::filesystem::path> files = {model_file};
  // A model decides what is read here: as for an import, only what lies beneath its folder.
  importer::ExternalFiles beneath(ExternalRoot(options, model_file));
  for (const std::string& location : locations) {
    QUENCH_RETURN_IF_ERROR(beneath.Open(location).status());
    files.push_back(ExternalRoot(options, model_file) / location);
  }
  std::vector<std::string> frozen;
  for (const std::string& text : options.freeze) {
    QUENCH_ASSIGN_OR_RETURN(const auto pair, SplitAssignment("--freeze", text));
    frozen.push_back(pair.first);
    files.emplace_back(pair.second);
  }
  if (!options.architecture.empty()) files.emplace_back(options.architecture);
  for (const std::string& file : options.convert) files.emplace_back(file);
  *was_read = true;
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> digests, client.UploadFiles(files, context));
  QUENCH_ASSIGN_OR_RETURN(*model.mutable_import_options(), ImportOptionsProto(options, parsed));
  size_t next = 0;
  *model.mutable_model()->mutable_file() = digests[next++];
  model.mutable_model()->set_name(model_file.filename().string());
  for (const std::string& location : locations) {
    step::v1::File* file = model.mutable_model()->add_external_data();
    file->set_path(location);
    *file->mutable_digest() = digests[next++];
  }
  for (const std::string& input : frozen) {
    importer::v1::FrozenInput* added = model.mutable_import_options()->add_freeze();
    added->set_input(input);
    *added->mutable_tensor() = digests[next++];
  }
  if (!options.architecture.empty())
    *model.mutable_import_options()->mutable_architecture() = digests[next++];
  while (next < digests.size())
    *model.mutable_import_options()->add_conversions() = digests[next++];
  return absl::OkStatus();
}

absl::Status AddModule(const ModelOptions& options, GatewayClient& client,
                       const StepContext& context, bool* was_read, pb::BatchModel& model) {
  QUENCH_ASSIGN_OR_RETURN(const importer::Imported loaded, LoadModel(options, context));
  *was_read = true;
  QUENCH_ASSIGN_OR_RETURN(*model.mutable_module(),
                          steps::StoreModule(loaded.canonical, client.local()));
  std::vector<BlobId> blobs = {{model.module().digest().hash(),
                                static_cast<uint64_t>(model.module().digest().size_bytes())}};
  for (const auto& blob : model.module().blobs()) {
    blobs.push_back({blob.hash(), static_cast<uint64_t>(blob.size_bytes())});
  }
  return client.UploadBlobs(blobs, context);
}

}  // namespace

absl::StatusOr<pb::BatchModel> UploadModel(const ModelOptions& options, GatewayClient& client,
                                           const StepContext& context, bool* was_read) {
  bool unasked = false;
  if (was_read == nullptr) was_read = &unasked;
  *was_read = false;
  QUENCH_ASSIGN_OR_RETURN(const FileKind kind, KindOf(options.model));
  if (kind == FileKind::kArtifact) {
    return InvalidArgument("`{}` is a compiled library; this takes a model or an IR module",
                           options.model);
  }
  pb::BatchModel model;
  model.set_name(kModelName);
  if (kind == FileKind::kModel) {
    QUENCH_RETURN_IF_ERROR(AddModel(options, client, context, was_read, model));
  } else {
    QUENCH_RETURN_IF_ERROR(AddModule(options, client, context, was_read, model));
  }
  return model;
}

step::v1::PassOptions PassesOf(const ModelOptions& options, const std::string& stop_after) {
  step::v1::PassOptions passes;
  passes.set_batch(options.batch);
  passes.mutable_disabled()->Assign(options.disabled.begin(), options.disabled.end());
  passes.set_stop_after(stop_after);
  passes.set_float16(options.float16);
  passes.set_bfloat16(options.bfloat16);
  for (const auto& [value, magnitude] : options.magnitudes) {
    step::v1::ValueMagnitude* added = passes.add_magnitudes();
    added->set_value(value);
    added->set_magnitude(magnitude);
  }
  return passes;
}

codegen::v1::Target TargetOf(const std::string& name, const std::string& host) {
  codegen::v1::Target target;
  target.set_name(name);
  target.set_host_target(host);
  if (codegen::IsTargetSpec(name)) target.set_label("target");
  if (!codegen::NeedsCaller(name) && !codegen::NeedsCaller(host)) return target;
  const codegen::HostCpu& cpu = codegen::ThisCpu();
  target.mutable_host()->set_machine(cpu.machine);
  target.mutable_host()->mutable_features()->Assign(cpu.features.begin(), cpu.features.end());
  target.mutable_host()->set_l1_bytes(cpu.l1_bytes);
  target.mutable_host()->set_l2_bytes(cpu.l2_bytes);
  if (codegen::NeedsGpu(name)) target.mutable_host()->set_gpu(codegen::ThisGpu());
  return target;
}

absl::StatusOr<pb::Workflow> RunModels(const pb::WorkflowSpec& spec, GatewayClient& client,
                                       const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(pb::Workflow workflow, client.Run(spec, context));
  for (const pb::Step& step : workflow.steps()) {
    if (step.method() != "Import") continue;
    QUENCH_ASSIGN_OR_RETURN(
        const auto module,
        DownloadMessage<ir::v1::Module>(workflow, step.name(), "canonical", client, context));
    for (const std::string& warning : importer::WarningsOf(MetadataOf(module)))
      PrintWarning(warning);
  }
  return workflow;
}

absl::StatusOr<Graph> DownloadModule(const pb::Workflow& workflow, const std::string& step,
                                     const std::string& output, GatewayClient& client,
                                     const StepContext& context) {
  for (const pb::Step& each : workflow.steps()) {
    if (each.name() != step) continue;
    for (const pb::StepOutput& found : each.outputs()) {
      if (found.name() != output || !found.has_module()) continue;
      std::vector<Digest> digests = {found.module().digest()};
      digests.insert(digests.end(), found.module().blobs().begin(), found.module().blobs().end());
      QUENCH_RETURN_IF_ERROR(client.Download(digests, context));
      return steps::LoadModule(found.module(), output, client.local());
    }
  }
  return Internal("{}: step `{}` has no module `{}`", workflow.name(), step, output);
}

}  // namespace quench::cli
