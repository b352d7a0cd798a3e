#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/analyser/analyser.h"
#include "services/analyser/plots.h"
#include "services/analyser/report_page.h"
#include "services/cli/activations.h"
#include "services/cli/ceilings.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/listing_file.h"
#include "services/cli/memory_plan.h"
#include "services/cli/model_source.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kAnalyseExamples[] = R"(Examples:
  quench analyse model.onnx                        layers, parameters, MACs, activation memory
  quench analyse model.onnx --format json          the same for scripts
  quench analyse bert.onnx --size batch=1 --size seq=128   counted at these sizes of symbolic dimensions
  quench analyse model.onnx --depth 2 --columns op,output,parameters,macs,share
  quench analyse model.onnx --listing bandwidth    bytes of each layer's first input and output, the peak layer
  quench analyse model.onnx --listing timeline     the values in memory while each layer runs
  quench analyse model.onnx --listing plan --memory-plan host   placement of values in the arena of compiled code
  quench analyse model.onnx --weights -o m.txt     zeros, range and histogram of every weight too
  quench analyse model.onnx --listing roofline --ceilings raspberry-pi/5
                                                   bottleneck and minimum time of each layer
  quench analyse model.onnx --report model.html    HTML page: summary, layer tree, plots, graph
  quench analyse model.onnx --report model.html --weights --input image=cat.npy   histograms of weights and values
  quench analyse model.onnx --report both.html --beside quantized.qir
  quench analyse model.onnx --plot macs.svg --plot-kind macs
  quench analyse model.so                          of a compiled library: kernels, sizes, memory
  quench analyse model.onnx --gateway build-farm:7450)";

struct AnalyseArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<ListingFile> file = std::make_shared<ListingFile>();
  std::vector<std::string> sizes;
  bool weights = false;
  std::string ceilings;
  bool remeasure = false;
  std::string page, beside;  // files
  std::string plot, plot_kind = "memory";
  std::string plan;  // a target
  InputFlags inputs;
  analyser::TableOptions table;
  std::string format = "text";
};

absl::StatusOr<analyser::ModelReport> AnalyseHere(const ModelOptions& options,
                                                  const analyser::AnalyseOptions& analysis,
                                                  const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(options, context));
  QUENCH_ASSIGN_OR_RETURN(const Graph canonical,
                          WithBatch(std::move(model.canonical), options, context));
  return analyser::Analyse(model.imported, canonical, analysis, context);
}

absl::StatusOr<analyser::ModelReport> ReportOf(const ModelOptions& options, const AnalyseArgs& args,
                                               const analyser::AnalyseOptions& analysis,
                                               const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(analyser::ModelReport report,
                          UsesGateway(*args.gateway)
                              ? AnalyseThere(*args.gateway, options, analysis, context)
                              : AnalyseHere(options, analysis, context));
  if (!args.plan.empty()) {
    QUENCH_ASSIGN_OR_RETURN(report.memory_plan,
                            MemoryPlanOf(*args.gateway, options, args.plan, context));
  }
  if (args.inputs.random || !args.inputs.inputs.empty()) {
    InputFlags inputs = args.inputs;
    inputs.sizes = args.sizes;
    QUENCH_ASSIGN_OR_RETURN(report.activations,
                            ActivationsOf(*args.gateway, options, inputs, context));
  }
  return report;
}

// Pages and plots take the place of the listing, unless that has a file too.
bool Lists(const AnalyseArgs& args) {
  return (args.page.empty() && args.plot.empty()) || !args.file->output.empty();
}

// Whether an option for the tree of layers was given.
bool ShapesTree(const AnalyseArgs& args) {
  return args.table.depth != 0 || !args.table.columns.empty();
}

std::string TableProblem(const AnalyseArgs& args) {
  const bool listed = args.table.listing != "layers";
  if (args.format == "json" && (listed || ShapesTree(args) || args.table.rules)) {
    return "--listing, --depth, --columns and --rules apply to tables only; JSON always contains "
           "everything";
  }
  if (args.table.rules && (listed || !Lists(args)))
    return "--rules are printed with --listing layers only";
  if (listed && ShapesTree(args)) return "--depth and --columns apply to --listing layers only";
  if (!Lists(args) && (listed || ShapesTree(args) || args.format == "json")) {
    return "--listing, --depth, --columns and --format have no effect with --report or --plot, "
           "which replace the listing; add --output FILE to write the listing too";
  }
  if (!Lists(args) && args.page.empty() && args.weights)
    return "--weights shows in listings and in --report, not in --plot";
  if (args.plan.empty() && args.table.listing == "plan")
    return "--listing plan needs --memory-plan";
  if (args.plan.empty() && !args.plot.empty() && args.plot_kind == "plan")
    return "--plot-kind plan needs --memory-plan";
  if (args.remeasure && args.ceilings != "host")
    return "--remeasure needs --ceilings host: only this machine is measured";
  if (!args.ceilings.empty()) return "";
  if (args.table.listing == "roofline") return "--listing roofline needs --ceilings";
  if (!args.plot.empty() && args.plot_kind == "roofline")
    return "--plot-kind roofline needs --ceilings";
  for (const std::string& column : args.table.columns) {
    if (analyser::NeedsCeilings(column))
      return fmt::format("--columns {} needs --ceilings", column);
  }
  return "";
}

absl::Status RunOnLibrary(const AnalyseArgs& args, const std::map<std::string, int64_t>& sizes,
                          const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(RefuseModelOptions(*args.model, "a compiled library"));
  if (args.weights || args.table.listing != "layers" || ShapesTree(args) || args.table.rules ||
      !args.ceilings.empty() || !args.plan.empty() || !args.page.empty() || !args.plot.empty()) {
    return InvalidArgument(
        "`{}` is a compiled library: --weights, --listing, --depth, --columns, --rules, "
        "--ceilings, "
        "--memory-plan, --report and --plot apply to models only",
        args.model->model);
  }
  if (UsesGateway(*args.gateway)) {
    return InvalidArgument(
        "`{}` is a compiled library, and those are analysed locally: remove --gateway",
        args.model->model);
  }
  QUENCH_ASSIGN_OR_RETURN(const analyser::LibraryReport report,
                          analyser::AnalyseLibrary(args.model->model, sizes, context));
  return WriteListing(args.format == "json" ? analyser::ToJson(report) : analyser::ToTable(report),
                      *args.file);
}

absl::Status WritePage(const analyser::ModelReport& report, const AnalyseArgs& args,
                       const analyser::AnalyseOptions& analysis, const StepContext& context) {
  if (args.page.empty()) return absl::OkStatus();
  if (args.beside.empty()) return WriteFileAtomically(args.page, analyser::ReportPage({&report}));
  ModelOptions options = *args.model;
  options.model = args.beside;
  QUENCH_ASSIGN_OR_RETURN(analyser::ModelReport other, ReportOf(options, args, analysis, context));
  analyser::ModelReport first = report;
  if (first.name == other.name) {
    first.name +=
        fmt::format(" ({})", std::filesystem::path(args.model->model).filename().string());
    other.name += fmt::format(" ({})", std::filesystem::path(args.beside).filename().string());
  }
  return WriteFileAtomically(args.page, analyser::ReportPage({&first, &other}));
}

absl::Status CheckFiles(const AnalyseArgs& args) {
  for (const std::string& file : {args.file->output, args.page, args.plot})
    QUENCH_RETURN_IF_ERROR(CheckListingFile({file, args.file->force}));
  return absl::OkStatus();
}

absl::Status RunAnalyse(const AnalyseArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(CheckFiles(args));
  analyser::AnalyseOptions analysis;
  QUENCH_ASSIGN_OR_RETURN(analysis.sizes, ParseSizes(args.sizes));
  analysis.weight_statistics = args.weights;
  const absl::StatusOr<FileKind> kind = KindOf(args.model->model);
  if (kind.ok() && *kind == FileKind::kArtifact) return RunOnLibrary(args, analysis.sizes, context);
  if (!args.ceilings.empty()) {
    QUENCH_ASSIGN_OR_RETURN(analysis.ceilings, args.remeasure
                                                   ? HostCeilings(HostUse::kAfresh, context)
                                                   : CeilingsOf(args.ceilings, context));
  }
  QUENCH_ASSIGN_OR_RETURN(const analyser::ModelReport report,
                          ReportOf(*args.model, args, analysis, context));
  QUENCH_RETURN_IF_ERROR(WritePage(report, args, analysis, context));
  if (!args.plot.empty()) {
    QUENCH_RETURN_IF_ERROR(
        WriteFileAtomically(args.plot, analyser::PlotFile(report, args.plot_kind)));
  }
  if (!Lists(args)) return absl::OkStatus();
  return WriteListing(
      args.format == "json" ? analyser::ToJson(report) : analyser::ToTable(report, args.table),
      *args.file);
}

void AddPictures(const Options& options, const std::shared_ptr<AnalyseArgs>& args) {
  options.In("Output").Add(
      "--report", args->page,
      "Write an HTML page: summary, layer tree, plots and graph (with --weights also histograms)",
      "FILE.html");
  options.In("Output")
      .Add("--beside", args->beside,
           "Compare with this second model, analysed with the same options, on the same page",
           "OTHER")
      .Needs({"--report"});
  options.In("Input").Add(
      "--input,-i", args->inputs.inputs,
      "Run the model on this tensor (.npy or .pb) and show statistics of its values in the report",
      "NAME=FILE");
  options.In("Input")
      .Add("--random", args->inputs.random, "Fill inputs that have no file with random values",
           "SEED")
      .Needs({"--report"});
  options.In("Output").Add("--plot", args->plot, "Write one plot as an SVG file", "FILE.svg");
  options.In("Output")
      .Add("--plot-kind", args->plot_kind, "Kind of plot",
           fmt::format("{} (default memory)", fmt::join(analyser::PlotKinds(), "|")))
      .OneOf(analyser::PlotKinds())
      .Needs({"--plot"});
}

}  // namespace

Action DeclareAnalyse(const Options& options) {
  auto args = std::make_shared<AnalyseArgs>();
  AddModelOptions(options, args->model, SizeIs::kOfData);
  options
      .Add("--listing", args->table.listing, "Listing to print",
           fmt::format("{} (default layers)", fmt::join(analyser::Listings(), "|")))
      .OneOf(analyser::Listings());
  options
      .Add("--depth", args->table.depth,
           "Number of levels of the layer tree to show (default: all)", "N")
      .Range(1, 64);
  options
      .Add("--columns", args->table.columns,
           fmt::format("Columns of the layer tree: {}", fmt::join(analyser::Columns(), ", ")),
           "NAMES")
      .Delimiter(',')
      .OneOf(analyser::Columns());
  options.Flag("--weights", args->weights,
               "Also show the share of zeros, range and histogram of every weight");
  options.Add("--ceilings", args->ceilings,
              "Predict each layer's minimum time from peak compute and bandwidth: of this machine "
              "(measured once, all cores), of a target, or given in GFLOP/s and GB/s",
              "host|TARGET|GFLOPS,GBYTES");
  options.Rare()
      .Flag("--remeasure", args->remeasure,
            "Measure this machine's peak compute and bandwidth again instead of using the saved "
            "values")
      .Needs({"--ceilings"});
  options.Add(
      "--memory-plan", args->plan,
      "Also compile the model for this target and show where its values are placed in the arena",
      "TARGET");
  options.Flag("--rules", args->table.rules, "Also print how things are counted");
  AddFormat(options, args->format);
  AddPictures(options, args);
  AddListingFile(options, args->file, {"--report", "--plot"});
  options.AddRule([args] { return TableProblem(*args); });
  options.AddRule([args] {
    return !args->inputs.inputs.empty() && args->page.empty()
               ? std::string("--input needs --report")
               : std::string();
  });
  AddWorkOptions(options, args->gateway);
  options.Examples(kAnalyseExamples);
  return [args](const StepContext& context) {
    args->sizes = TakeDataSizes(*args->model);
    return RunAnalyse(*args, context);
  };
}

}  // namespace quench::cli
