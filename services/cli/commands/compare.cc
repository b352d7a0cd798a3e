#include "services/analyser/compare.h"

#include <fmt/format.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runner/open_sizes.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/compare_page.h"
#include "services/cli/device_flag.h"
#include "services/cli/labels.h"
#include "services/cli/model_source.h"
#include "services/cli/quantization.h"
#include "services/cli/remote.h"
#include "services/codegen/codegen.h"

namespace quench::cli {
namespace {

constexpr char kCompareExamples[] = R"(Examples:
  quench compare model.onnx quantized.qir --data samples               error of the outputs, agreement of predicted classes
  quench compare model.onnx quantized.qir --data samples --labels labels.txt --layers
                                                                       also top-1, top-5 and every layer
  quench compare fp32/model.so int8/model.so --data samples --format json
  quench compare test_data_set_0 out/model.so                          compares with outputs in files (ONNX test data)
  quench compare expected.npz out/model.so --data inputs.npz           the same, arrays named like the outputs
  quench compare model.onnx quantized.qir --data samples --layers --worst 10
                                                                       the ten layers with the largest error
  quench compare model.onnx quantized.qir --data samples --layers --report cost.html
                                                                       also an HTML page: a bar per layer, the worst marked

Labels: one class for each row of the first output, in the order of the samples; .npy, or a number a line.
Samples have any form that `quench calibrate` accepts.)";

struct CompareArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::string other;
  std::string data;
  std::string images;
  int64_t random = 0;
  uint64_t seed = 1;
  std::vector<std::string> sizes;
  std::string labels;
  int64_t worst = 0;
  analyser::CompareOptions options;
  std::string format = "text";
  std::string report;
  bool force = false;
};

// Before anything is computed: whether the report can be written where it is to be.
absl::Status CheckReport(const CompareArgs& args) {
  const std::filesystem::path path = args.report;
  std::error_code error;
  if (path.empty()) return absl::OkStatus();
  if (!args.force && std::filesystem::exists(path, error)) {
    return absl::AlreadyExistsError(
        fmt::format("report `{}` exists; --force replaces it", args.report));
  }
  // A folder, or a device: what is written would take its place.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return InvalidArgument("report `{}` exists and is not a regular file", args.report);
  }
  if (path.has_parent_path() && !std::filesystem::is_directory(path.parent_path(), error)) {
    return absl::NotFoundError(fmt::format("report `{}`: there is no folder `{}`", args.report,
                                           path.parent_path().string()));
  }
  return absl::OkStatus();
}

// Outputs in files, in place of a reference that runs.
bool IsExpectedFiles(const std::string& path) {
  const std::filesystem::path file = path;
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    return !importer::ModelFileOf(file).ok();  // a saved model of TensorFlow runs
  return file.extension() == ".npz" || file.extension() == ".npy" || file.extension() == ".zip";
}

// Options of an import are for nothing where both are compiled already.
absl::Status CheckModelOptions(const CompareArgs& args) {
  for (const std::string& path : {args.model->model, args.other}) {
    if (IsExpectedFiles(path)) continue;
    QUENCH_ASSIGN_OR_RETURN(const FileKind kind, KindOf(path));
    if (kind != FileKind::kArtifact) return absl::OkStatus();
  }
  return RefuseModelOptions(*args.model, "nothing is imported");
}

// A library as it is; anything else compiled, with taps where layers are to be seen.
absl::StatusOr<std::filesystem::path> LibraryOf(const CompareArgs& args, const std::string& path,
                                                const std::filesystem::path& folder,
                                                const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const FileKind kind, KindOf(path));
  if (kind == FileKind::kArtifact) return std::filesystem::path(path);
  ModelOptions model = *args.model;
  model.model = path;
  QUENCH_ASSIGN_OR_RETURN(importer::Imported imported, LoadModel(model, context));
  QUENCH_ASSIGN_OR_RETURN(const Graph graph, passes::RunPipeline(std::move(imported.canonical),
                                                                 PassOptionsOf(model), context));
  codegen::CompileOptions options;
  options.passes = PassOptionsOf(model);
  if (args.options.layers) {
    options.taps = codegen::Taps::kModelValues;
    options.opt_level = 2;  // every value is to be seen: nothing is fused
  }
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) return ErrnoStatus(error.value(), "create folder", folder);
  std::filesystem::path library = folder / "model.so";
  QUENCH_RETURN_IF_ERROR(
      Annotate(codegen::Compile(graph, options, library, folder / "model.h", context).status(),
               fmt::format("`{}`", path)));
  return library;
}

absl::StatusOr<analyser::CompareReport> CompareHere(const CompareArgs& args,
                                                    const analyser::CompareOptions& options,
                                                    const SampleFormat& format,
                                                    const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  const bool files = IsExpectedFiles(args.model->model);
  std::filesystem::path reference;
  if (!files) {
    QUENCH_ASSIGN_OR_RETURN(reference,
                            LibraryOf(args, args.model->model, folder.path() / "a", context));
  }
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path other,
                          LibraryOf(args, args.other, folder.path() / "b", context));
  std::unique_ptr<Samples> samples, expected;
  {
    QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                            Artifact::Open(other, {1, args.options.device}));
    if (files) {
      SampleFormat outputs{ReadTensorFile, std::nullopt, "output"};
      QUENCH_ASSIGN_OR_RETURN(
          expected, OpenSamples(args.model->model, artifact->outputs(), outputs, context));
    }
    if (args.random > 0) {
      QUENCH_ASSIGN_OR_RETURN(auto sizes, ParseSizes(args.sizes));
      QUENCH_ASSIGN_OR_RETURN(sizes, ChooseSizes(artifact->inputs(), sizes));
      if (!sizes.empty()) fmt::print(stderr, "quench: random samples at {}\n", SizesText(sizes));
      samples = MakeRandomSamples(args.random, args.seed, artifact->inputs(), std::move(sizes));
    } else {
      QUENCH_ASSIGN_OR_RETURN(samples, OpenSamples(args.data, artifact->inputs(), format, context));
    }
  }
  if (files) return analyser::CompareWithFiles(*expected, other, *samples, options, context);
  return analyser::Compare(reference, other, *samples, options, context);
}

absl::Status RunCompare(CompareArgs args, const StepContext& context) {
  std::error_code error;
  const bool files = IsExpectedFiles(args.model->model);
  if (files && (args.options.layers || args.random > 0)) {
    return InvalidArgument("`{}` contains only outputs: --{} needs a reference that can be run",
                           args.model->model, args.random > 0 ? "random" : "layers");
  }
  // A folder of test data has inputs too.
  if (files && args.data.empty() && std::filesystem::is_directory(args.model->model, error))
    args.data = args.model->model;
  if (args.data.empty() == (args.random == 0)) {
    return UsageError(
        InvalidArgument("no samples: give --data PATH, or --random N if there is no data"));
  }
  QUENCH_RETURN_IF_ERROR(CheckReport(args));
  QUENCH_RETURN_IF_ERROR(CheckModelOptions(args));
  analyser::CompareOptions options = args.options;
  QUENCH_ASSIGN_OR_RETURN(options.labels, ReadLabels(args.labels));
  QUENCH_ASSIGN_OR_RETURN(const SampleFormat format, SampleFormatOf(args.images));
  QUENCH_ASSIGN_OR_RETURN(
      const analyser::CompareReport report,
      UsesGateway(*args.gateway)
          ? CompareThere({*args.gateway, *args.model, args.other,
                          SampleOptions{args.data, args.images, args.random, args.seed, args.sizes},
                          options, files},
                         context)
          : CompareHere(args, options, format, context));
  analyser::CompareReport shown = report;
  if (args.worst > 0) analyser::KeepWorst(args.worst, shown);
  fmt::print("{}",
             args.format == "json" ? analyser::ToJson(shown) + "\n" : analyser::ToTable(shown));
  if (args.report.empty()) return absl::OkStatus();
  const std::string data =
      args.random > 0 ? fmt::format("random ones of seed {}", args.seed) : args.data;
  return WriteFileAtomically(args.report,
                             ComparePage({args.model->model, args.other, data}, report));
}

}  // namespace

Action DeclareCompare(const Options& options) {
  auto args = std::make_shared<CompareArgs>();
  AddModelOptions(options, args->model, SizeIs::kOfData);
  AddPassFlags(options, args->model, PassesThatShow());
  options.Describe(
      "MODEL",
      "Reference: model file, IR module, compiled library, or files that contain its outputs");
  options
      .Add("OTHER", args->other, "The other model, library or files, compared with the reference",
           "FILE")
      .Required();
  options.In("Input").Add("--data,-d", args->data, "Samples: a file, folder or ZIP archive",
                          "PATH");
  AddImageFlag(options, args->images).Needs({"--data"});
  options.In("Input")
      .Add("--random", args->random, "Use N random samples if no real ones are available", "N")
      .AtLeast(1);
  options.In("Input")
      .Rare()
      .Add("--seed", args->seed, "Seed of the random samples", "N (default 1)")
      .Needs({"--random"});
  options.AddRule([args] { return SizesProblem(*args->model, args->random > 0); });
  options.In("Input").Add("--labels", args->labels,
                          "Correct class for each row of the first output: .npy, one number per "
                          "line, or a folder with a folder of images per class (sorted by name)",
                          "FILE");
  options.Flag("--layers", args->options.layers, "Also compare the output of every layer");
  options
      .Add("--worst", args->worst,
           "List only the N layers with the largest relative error, worst first", "N")
      .AtLeast(1)
      .Needs({"--layers"});
  options
      .Add("--tolerance", args->options.tolerance,
           "Relative error above which a layer counts as diverging",
           "X (default 0.001; 0.1 where layers show that OTHER is quantized)")
      .AtLeast(0);
  options
      .Add("--threads", args->options.threads, "Number of threads for libraries", "N (default 1)")
      .Range(1, 1024);
  AddDeviceFlag(options, args->options.device);
  options.Describe(
      "--device",
      "Where OTHER runs, and MODEL if it has code for that: cpu, cuda, or cuda:1 for "
      "the second GPU (default: a GPU if the library has code for it and there is one)");
  AddFormat(options, args->format);
  options.In("Output").Add("--report", args->report, "Also write an HTML page with charts",
                           "FILE.html");
  options.In("Output")
      .Flag("--force,-f", args->force, "Replace the file of --report")
      .Needs({"--report"});
  AddWorkOptions(options, args->gateway);
  options.Examples(kCompareExamples);
  return [args](const StepContext& context) {
    args->sizes = TakeDataSizes(*args->model);
    return RunCompare(*args, context);
  };
}

}  // namespace quench::cli
