#include "services/importer/service.h"

#include <algorithm>

#include "common/ir/npy.h"
#include "common/ir/text.h"
#include "common/passes/pass.h"
#include "common/rpc/errors.h"
#include "common/steps/modules.h"
#include "quench/importer/v1/importer.grpc.pb.h"
#include "services/importer/importer.h"
#include "services/importer/onnx/tensor_file.h"

namespace quench::importer {
namespace {

// Its own messages beside ours of the same names.
namespace pb = ::quench::importer::v1;

constexpr int64_t kMaxConversionBytes = 1 << 20;
constexpr int64_t kMaxArchitectureBytes = 64 << 20;

using rpc::FieldError;
using steps::Workplace;

bool IsFileName(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

// .npy by its first bytes, else a TensorProto.
absl::StatusOr<Tensor> ReadFrozen(const steps::BlobDigest& digest, const std::string& field,
                                  const Workplace& place, int number) {
  QUENCH_ASSIGN_OR_RETURN(const auto file, place.blobs.Open(digest.hash()));
  const std::string_view head(reinterpret_cast<const char*>(file->bytes().data()),
                              std::min<size_t>(file->bytes().size(), 6));
  const bool npy = head == "\x93NUMPY";
  const std::filesystem::path path =
      place.scratch / fmt::format("frozen{}{}", number, npy ? ".npy" : ".pb");
  QUENCH_RETURN_IF_ERROR(steps::LinkBlob(digest, path, place.blobs));
  absl::StatusOr<Tensor> tensor = npy ? ReadNpy(path) : ReadTensorProto(path);
  return tensor.ok() ? std::move(tensor) : Annotate(tensor.status(), field);
}

absl::StatusOr<ImportOptions> OptionsOf(const pb::ImportOptions& asked, const Workplace& place) {
  ImportOptions options;
  options.format = asked.format();
  for (const pb::InputShape& shape : asked.shapes()) {
    options.shapes[shape.input()] = {shape.dims().begin(), shape.dims().end()};
  }
  for (const pb::SymbolRange& range : asked.dims()) {
    if (range.min() < 0 || range.max() < range.min()) {
      return FieldError("options.dims",
                        fmt::format("`{}`: {} to {} is not a range, expected 0 <= min <= max",
                                    range.symbol(), range.min(), range.max()));
    }
    options.dims[range.symbol()] = {range.min(), range.max()};
  }
  for (const pb::InputType& type : asked.types()) {
    // The numbers of quench.ir.v1.ElementType are those of DataType.
    const auto dtype = static_cast<DataType>(type.element_type());
    if (type.element_type() == 0 || !ir::v1::ElementType_IsValid(type.element_type())) {
      return FieldError("options.types", fmt::format("`{}`: {} is not an element type",
                                                     type.input(), int{type.element_type()}));
    }
    options.dtypes[type.input()] = dtype;
  }
  int number = 0;
  for (const pb::FrozenInput& frozen : asked.freeze()) {
    QUENCH_ASSIGN_OR_RETURN(
        options.freeze_params[frozen.input()],
        ReadFrozen(frozen.tensor(), fmt::format("options.freeze[{}]", number), place, number));
    ++number;
  }
  options.no_freeze = {asked.no_freeze().begin(), asked.no_freeze().end()};
  options.convert_config = {asked.convert_config().begin(), asked.convert_config().end()};
  for (int i = 0; i < asked.conversions_size(); ++i) {
    const std::string field = fmt::format("options.conversions[{}]", i);
    if (asked.conversions(i).size_bytes() > kMaxConversionBytes)
      return FieldError(field, fmt::format("has {} bytes, at most {} are read",
                                           asked.conversions(i).size_bytes(), kMaxConversionBytes));
    QUENCH_ASSIGN_OR_RETURN(const auto text, place.blobs.Open(asked.conversions(i).hash()));
    options.conversions.emplace_back(reinterpret_cast<const char*>(text->bytes().data()),
                                     text->bytes().size());
  }
  if (asked.has_architecture()) {
    if (asked.architecture().size_bytes() > kMaxArchitectureBytes)
      return FieldError("options.architecture",
                        fmt::format("has {} bytes, at most {} are read",
                                    asked.architecture().size_bytes(), kMaxArchitectureBytes));
    QUENCH_ASSIGN_OR_RETURN(const auto text, place.blobs.Open(asked.architecture().hash()));
    options.architecture.assign(reinterpret_cast<const char*>(text->bytes().data()),
                                text->bytes().size());
    if (options.architecture.empty()) return FieldError("options.architecture", "is empty");
  }
  if (!ir::v1::ElementType_IsValid(asked.default_type()))
    return FieldError("options.default_type",
                      fmt::format("{} is not an element type", int{asked.default_type()}));
  options.default_dtype = static_cast<DataType>(asked.default_type());
  options.keep_quantized_weight = asked.keep_quantized_weight();
  options.opset = asked.opset();
  options.signature = asked.signature();
  if (!pb::Layout_IsValid(asked.layout()))
    return FieldError("options.layout", fmt::format("{} is not a layout", int{asked.layout()}));
  if (asked.layout() != pb::LAYOUT_UNSPECIFIED)
    options.layout = asked.layout() == pb::LAYOUT_CHANNELS_LAST ? "last" : "first";
  options.outputs = {asked.outputs().begin(), asked.outputs().end()};
  options.inputs = {asked.inputs().begin(), asked.inputs().end()};
  return options;
}

// The model under its own name, its external data wherever the store has it.
absl::StatusOr<std::filesystem::path> PlaceModel(const pb::Model& model, const Workplace& place,
                                                 ImportOptions& options) {
  if (!model.has_file()) return FieldError("model.file", "missing, must be a model's digest");
  const std::string name = model.name().empty() ? "model" : model.name();
  if (!IsFileName(name)) {
    return FieldError("model.name", "must be a file name of at most 255 bytes, without `/`");
  }
  const std::filesystem::path folder = place.scratch / "model";
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) return ErrnoStatus(error.value(), "create folder", folder);
  QUENCH_RETURN_IF_ERROR(steps::LinkBlob(model.file(), folder / name, place.blobs));
  options.external_files.emplace();
  for (const step::v1::File& file : model.external_data()) {
    if (!steps::IsRelativePath(file.path())) {
      return FieldError("model.external_data",
                        fmt::format("path `{}`: must be relative, without `..`, of at most 4096 "
                                    "bytes",
                                    file.path().substr(0, 80)));
    }
    options.external_files->emplace(file.path(), place.blobs.PathOf(file.digest().hash()));
  }
  QUENCH_ASSIGN_OR_RETURN(const std::vector<std::string> locations,
                          ExternalLocations(folder / name, options));
  std::vector<std::string> missing;
  for (const std::string& location : locations) {
    if (!options.external_files->contains(location)) missing.push_back("`" + location + "`");
  }
  if (missing.empty()) return folder / name;
  return FieldError(
      "model.external_data",
      fmt::format("the model's tensors lie in {} that did not come with it: {}",
                  missing.size() == 1 ? "a file" : "files", fmt::join(missing, ", ")));
}

absl::StatusOr<pb::ImportResult> ImportStep(const pb::ImportRequest& request,
                                            const Workplace& place, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(ImportOptions options, OptionsOf(request.options(), place));
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path path,
                          PlaceModel(request.model(), place, options));
  QUENCH_ASSIGN_OR_RETURN(const Imported imported,
                          ImportModel(path, options, place.blobs, context));
  pb::ImportResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_imported(),
                          steps::StoreModule(imported.imported, place.blobs));
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_canonical(),
                          steps::StoreModule(imported.canonical, place.blobs));
  if (request.options().check()) {
    // libonnx looks for external data beside the model.
    QUENCH_RETURN_IF_ERROR(steps::LinkFiles(request.model().external_data(), "model.external_data",
                                            path.parent_path(), place.blobs));
    QUENCH_ASSIGN_OR_RETURN(const std::vector<std::string> disagreements,
                            CheckWithLibonnx(path, imported.imported));
    result.mutable_disagreements()->Assign(disagreements.begin(), disagreements.end());
  }
  return result;
}

absl::StatusOr<Graph> RunPasses(Graph graph, const pb::TransformRequest& request,
                                const StepContext& context) {
  passes::PassOptions options;
  options.batch = request.options().batch();
  if (options.batch < 0) {
    return FieldError("options.batch",
                      fmt::format("{}, must not be negative", request.options().batch()));
  }
  options.disabled = {request.options().disabled().begin(), request.options().disabled().end()};
  options.stop_after = request.options().stop_after();
  QUENCH_ASSIGN_OR_RETURN(options.store_as, steps::StoredType(request.options(), "options"));
  for (const step::v1::ValueMagnitude& value : request.options().magnitudes())
    options.magnitudes[value.value()] = value.magnitude();
  if (request.passes().empty()) {
    return passes::RunPipeline(std::move(graph), options, context);
  }
  for (const std::string& name : request.passes()) {
    const passes::PassInfo* pass = passes::FindPass(name);
    if (pass == nullptr) {
      std::vector<std::string_view> known;
      for (const passes::PassInfo& info : passes::AllPasses()) known.push_back(info.name);
      return FieldError("passes", fmt::format("unknown pass `{}` (known: {})", name.substr(0, 64),
                                              fmt::join(known, ", ")));
    }
    QUENCH_ASSIGN_OR_RETURN(graph, passes::RunPass(*pass, std::move(graph), options, context));
    if (name == options.stop_after) break;
  }
  return graph;
}

absl::StatusOr<pb::TransformResult> TransformStep(const pb::TransformRequest& request,
                                                  const Workplace& place,
                                                  const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(Graph graph, steps::LoadModule(request.module(), "module", place.blobs));
  if (graph.stage == Stage::kImported) {
    return FieldError("module", "is at stage `imported`, passes take `canonical`");
  }
  QUENCH_ASSIGN_OR_RETURN(graph, RunPasses(std::move(graph), request, context));
  pb::TransformResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_module(),
                          steps::StoreModule(std::move(graph), place.blobs));
  return result;
}

absl::StatusOr<pb::ExportResult> ExportStep(const pb::ExportRequest& request,
                                            const Workplace& place, const StepContext& context) {
  const bool as_text = request.format() == "text";
  if (!request.format().empty() && request.format() != "onnx" && !as_text) {
    return FieldError(
        "format", fmt::format("`{}`, must be `onnx` or `text`", request.format().substr(0, 64)));
  }
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          steps::LoadModule(request.module(), "module", place.blobs));
  pb::ExportResult result;
  if (as_text) {
    QUENCH_ASSIGN_OR_RETURN(*result.mutable_file(),
                            steps::StoreBytes(PrintGraph(graph), place.blobs));
    return result;
  }
  const std::filesystem::path folder = place.scratch / "export";
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) return ErrnoStatus(error.value(), "create folder", folder);
  const std::filesystem::path file = folder / "model.onnx";
  QUENCH_RETURN_IF_ERROR(ExportOnnx(graph, file, context));
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_file(), steps::MoveFile(file, place.blobs, context));
  std::vector<std::filesystem::path> beside;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.is_regular_file(error) && entry.path() != file) beside.push_back(entry.path());
  }
  std::ranges::sort(beside);  // equal results for equal modules
  for (const std::filesystem::path& path : beside) {
    step::v1::File* external = result.add_external_data();
    external->set_path(path.lexically_relative(folder).string());
    QUENCH_ASSIGN_OR_RETURN(*external->mutable_digest(),
                            steps::MoveFile(path, place.blobs, context));
  }
  return result;
}

class ImporterService final : public pb::Importer::CallbackService {
 public:
  ImporterService(const steps::ServiceParts& parts, const std::vector<steps::Step>& list)
      : import_(parts, list[0]), transform_(parts, list[1]), export_(parts, list[2]) {}

 private:
  grpc::ServerWriteReactor<pb::ImportEvent>* Import(grpc::CallbackServerContext* context,
                                                    const pb::ImportRequest* request) override {
    return import_.Serve<pb::ImportEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::TransformEvent>* Transform(
      grpc::CallbackServerContext* context, const pb::TransformRequest* request) override {
    return transform_.Serve<pb::TransformEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::ExportEvent>* Export(grpc::CallbackServerContext* context,
                                                    const pb::ExportRequest* request) override {
    return export_.Serve<pb::ExportEvent>(context, request);
  }

  steps::StepMethod import_, transform_, export_;
};

steps::Step Import() {
  steps::Step step = steps::MakeStep("quench.importer.v1.Importer/Import", metrics::Stage::kImport,
                                     steps::Caching::kPure, ImportStep);
  step.starts_processes = true;  // HDF5 is read in one
  return step;
}

}  // namespace

const steps::ServiceDefinition& ImporterDefinition() {
  static const steps::ServiceDefinition* const definition = new steps::ServiceDefinition{
      metrics::Service::kImporter,
      "importer",
      pb::Importer::service_full_name(),
      7451,
      {Import(),
       steps::MakeStep("quench.importer.v1.Importer/Transform", metrics::Stage::kTransform,
                       steps::Caching::kPure, TransformStep),
       steps::MakeStep("quench.importer.v1.Importer/Export", metrics::Stage::kExport,
                       steps::Caching::kPure, ExportStep)},
      [](const steps::ServiceParts& parts, const std::vector<steps::Step>& list) {
        return std::make_unique<ImporterService>(parts, list);
      }};
  return *definition;
}

}  // namespace quench::importer
