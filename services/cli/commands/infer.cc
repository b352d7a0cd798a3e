#include "services/analyser/infer.h"

#include <filesystem>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/passes/pass.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/device_flag.h"
#include "services/cli/input_flags.h"
#include "services/cli/listing_file.h"
#include "services/cli/model_source.h"
#include "services/cli/remote.h"
#include "services/codegen/codegen.h"

namespace quench::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kInferExamples[] = R"(Examples:
  quench infer model.onnx --input image=cat.npy                        the outputs, with range, mean and histogram
  quench infer model.onnx --random 1 --op Conv --op 'Re*'              outputs of some operators
  quench infer model.onnx --random 1 --node '/layer1/*' --save values  also writes each as a .npy file
  quench infer model.onnx --input image=cat.npy --op Conv --save maps --pictures
                                                                       feature maps as PNG images too
  quench infer int8.qir --random 1 --all --target host                 values computed by compiled code, including integers
  quench infer model.onnx --random 1 --all --gateway build-farm:7450   on the gateway's analyser)";

struct InferArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<InputFlags> inputs = std::make_shared<InputFlags>();
  std::shared_ptr<ListingFile> file = std::make_shared<ListingFile>();
  analyser::InferOptions options;
  std::string target, device, save, format = "text";
  bool pictures = false;
};

// A file for each value in the folder --save, where there is one.
absl::Status SaveValue(const InferArgs& args, FileNames& files, const std::string& name,
                       const Tensor& tensor) {
  if (args.save.empty()) return absl::OkStatus();
  std::error_code error;
  fs::create_directories(args.save, error);
  if (error) return ErrnoStatus(error.value(), "create folder", args.save);
  const fs::path path = fs::path(args.save) / files.Of(name);
  QUENCH_RETURN_IF_ERROR(WriteNpy(tensor, path.string() + ".npy"));
  if (!args.pictures) return absl::OkStatus();
  const absl::StatusOr<std::string> png = analyser::FeatureMaps(tensor);
  if (!png.ok()) return absl::OkStatus();  // of no elements, or no numbers
  return WriteFileAtomically(path.string() + ".png", *png);
}

absl::StatusOr<analyser::InferReport> InferHere(const InferArgs& args, const StepContext& context) {
  FileNames files;
  const analyser::ValueSink sink = [&](const analyser::InferredValue& value, const Tensor& tensor) {
    return SaveValue(args, files, value.name, tensor);
  };
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          WithBatch(std::move(model.canonical), *args.model, context));
  QUENCH_ASSIGN_OR_RETURN(InputSources sources, SourcesOf(*args.inputs, InputsOf(graph)));
  sources.graph = &graph;
  if (args.target.empty()) {
    QUENCH_ASSIGN_OR_RETURN(
        const std::vector<Tensor> inputs,
        FillInputs(InputsOf(graph), ArtifactStatesOf(graph), sources, InputFlags::kHow));
    return analyser::Infer(graph, inputs, args.options, sink, context);
  }
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  codegen::CompileOptions options;
  options.target = args.target;
  options.taps = codegen::Taps::kRunningCode;
  QUENCH_ASSIGN_OR_RETURN(Graph prepared, passes::RunPipeline(graph, options.passes, context));
  const fs::path library = folder.path() / "model.so";
  QUENCH_RETURN_IF_ERROR(
      codegen::Compile(prepared, options, library, folder.path() / "model.h", context).status());
  const absl::StatusOr<std::unique_ptr<Artifact>> opened =
      Artifact::Open(library, {1, args.device});
  if (!opened.ok() && !args.device.empty()) return Annotate(opened.status(), "--device");
  if (!opened.ok()) {
    return InvalidArgument("--target: this machine cannot run code for `{}`: use `host`",
                           args.target);
  }
  const std::unique_ptr<Artifact>& artifact = *opened;
  QUENCH_ASSIGN_OR_RETURN(
      const std::vector<Tensor> inputs,
      FillInputs(artifact->inputs(), artifact->states(), sources, InputFlags::kHow));
  return analyser::InferLibrary(graph, *artifact, inputs, args.options, sink, context);
}

absl::Status RunInfer(const InferArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(CheckListingFile(*args.file));
  QUENCH_ASSIGN_OR_RETURN(const FileKind kind, KindOf(args.model->model));
  if (kind == FileKind::kArtifact) {
    return InvalidArgument(
        "`{}` is a compiled library, whose inner values are gone; give the model, and --target "
        "host for those of its code (`quench run` shows a library's outputs)",
        args.model->model);
  }
  std::error_code error;
  if (!args.save.empty() && fs::exists(args.save, error) && !fs::is_directory(args.save, error))
    return InvalidArgument("--save: `{}` is not a folder", args.save);
  analyser::InferReport report;
  if (UsesGateway(*args.gateway)) {
    QUENCH_ASSIGN_OR_RETURN(const InputSources sources, SourcesOf(*args.inputs, {}));
    const InferJob job{*args.gateway, *args.model, sources,       args.options,
                       args.target,   args.save,   args.pictures, args.device};
    QUENCH_ASSIGN_OR_RETURN(report, InferThere(job, context));
  } else {
    QUENCH_ASSIGN_OR_RETURN(report, InferHere(args, context));
  }
  return WriteListing(args.format == "json" ? analyser::ToJson(report) : analyser::ToTable(report),
                      *args.file);
}

}  // namespace

Action DeclareInfer(const Options& options) {
  auto args = std::make_shared<InferArgs>();
  AddModelOptions(options, args->model, SizeIs::kOfData);
  AddInputFlags(options, args->inputs);
  options.AddRule([args] { return SizesProblem(*args->model, args->inputs->random.has_value()); });
  options.Add("--op", args->options.ops, "Show values of nodes with a matching operator",
              "PATTERN");
  options.Add("--node", args->options.names, "Show values of nodes with a matching name",
              "PATTERN");
  options.Flag("--all", args->options.all, "Show every value").Excludes({"--op", "--node"});
  options.Add("--target", args->target,
              "Run code compiled for this target, which must be able to run here (default: the "
              "interpreter)",
              "TARGET");
  AddDeviceFlag(options, args->device).Needs({"--target"});
  options.In("Output").Add("--save", args->save, "Write each value that is shown to DIR/NAME.npy",
                           "DIR");
  options.In("Output")
      .Flag("--pictures", args->pictures,
            "Also write DIR/NAME.png: the last two axes as images, side by side")
      .Needs({"--save"});
  AddFormat(options, args->format);
  AddListingFile(options, args->file);
  AddWorkOptions(options, args->gateway);
  options.Examples(kInferExamples);
  return [args](const StepContext& context) {
    args->inputs->sizes = TakeDataSizes(*args->model);
    return RunInfer(*args, context);
  };
}

}  // namespace quench::cli
