#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "services/analyser/analyser.h"
#include "services/cli/ceilings.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/listing_file.h"
#include "services/cli/model_source.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kAnalyseExamples[] = R"(Examples:
  quench analyse model.onnx                        layers, parameters, MACs, activation memory
  quench analyse model.onnx --format json          the same for scripts
  quench analyse bert.onnx --size batch=1 --size seq=128   symbolic dims counted at these sizes
  quench analyse model.onnx --depth 2 --columns op,output,parameters,macs,share
  quench analyse model.onnx --listing bandwidth    bytes of each layer's first input and output, the peak layer
  quench analyse model.onnx --listing timeline     which values live while which layer runs
  quench analyse model.onnx --weights -o m.txt     zeros, range and histogram of every weight too
  quench analyse model.onnx --listing roofline --ceilings raspberry-pi/5
                                                   what bounds each layer, and how long it takes at least
  quench analyse model.so                          kernels, size by part, memory of a compiled library
  quench analyse model.onnx --gateway build-farm:7450)";

struct AnalyseArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<ListingFile> file = std::make_shared<ListingFile>();
  std::vector<std::string> sizes;
  bool weights = false;
  std::string ceilings;
  analyser::TableOptions table;
  std::string format = "table";
};

absl::StatusOr<analyser::ModelReport> AnalyseHere(const AnalyseArgs& args,
                                                  const analyser::AnalyseOptions& options,
                                                  const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  QUENCH_ASSIGN_OR_RETURN(const Graph canonical,
                          WithBatch(std::move(model.canonical), *args.model, context));
  return analyser::Analyse(model.imported, canonical, options, context);
}

// Whether an option for the tree of layers was given.
bool ShapesTree(const AnalyseArgs& args) {
  return args.table.depth != 0 || !args.table.columns.empty();
}

std::string TableProblem(const AnalyseArgs& args) {
  const bool listed = args.table.listing != "layers";
  if (args.format == "json" && (listed || ShapesTree(args)))
    return "--listing, --depth and --columns shape tables: JSON has everything";
  if (listed && ShapesTree(args)) return "--depth and --columns shape the listing `layers`";
  if (!args.ceilings.empty()) return "";
  if (args.table.listing == "roofline") return "--listing roofline needs --ceilings";
  for (const std::string& column : args.table.columns) {
    if (analyser::NeedsCeilings(column))
      return fmt::format("--columns {} needs --ceilings", column);
  }
  return "";
}

absl::Status RunOnLibrary(const AnalyseArgs& args, const std::map<std::string, int64_t>& sizes,
                          const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(RefuseModelOptions(*args.model, "a compiled library"));
  if (args.weights || args.table.listing != "layers" || ShapesTree(args) ||
      !args.ceilings.empty()) {
    return InvalidArgument(
        "`{}` is a compiled library, whose kernels are listed: --weights, --listing, --depth, "
        "--columns and --ceilings are about the layers of models",
        args.model->model);
  }
  if (UsesGateway(*args.gateway)) {
    return InvalidArgument(
        "`{}` is a compiled library, which is analysed on this machine: leave "
        "out the gateway",
        args.model->model);
  }
  QUENCH_ASSIGN_OR_RETURN(const analyser::LibraryReport report,
                          analyser::AnalyseLibrary(args.model->model, sizes, context));
  return WriteListing(args.format == "json" ? analyser::ToJson(report) : analyser::ToTable(report),
                      *args.file);
}

absl::Status RunAnalyse(const AnalyseArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(CheckListingFile(*args.file));
  analyser::AnalyseOptions analysis;
  QUENCH_ASSIGN_OR_RETURN(analysis.sizes, ParseSizes(args.sizes));
  analysis.weight_statistics = args.weights;
  const absl::StatusOr<FileKind> kind = KindOf(args.model->model);
  if (kind.ok() && *kind == FileKind::kArtifact) return RunOnLibrary(args, analysis.sizes, context);
  if (!args.ceilings.empty()) {
    QUENCH_ASSIGN_OR_RETURN(analysis.ceilings, CeilingsOf(args.ceilings, context));
  }
  QUENCH_ASSIGN_OR_RETURN(const analyser::ModelReport report,
                          UsesGateway(*args.gateway)
                              ? AnalyseThere(*args.gateway, *args.model, analysis, context)
                              : AnalyseHere(args, analysis, context));
  return WriteListing(
      args.format == "json" ? analyser::ToJson(report) : analyser::ToTable(report, args.table),
      *args.file);
}

}  // namespace

Action DeclareAnalyse(const Options& options) {
  auto args = std::make_shared<AnalyseArgs>();
  AddModelOptions(options, args->model);
  options.Add("--size", args->sizes,
              "Size at which a symbolic dim is counted (default: its smallest)", "NAME=N");
  options
      .Add("--listing", args->table.listing, "What is listed",
           fmt::format("{} (default layers)", fmt::join(analyser::Listings(), "|")))
      .OneOf(analyser::Listings());
  options
      .Add("--depth", args->table.depth,
           "Levels of the tree of layers that are shown (default: all)", "N")
      .Range(1, 64);
  options
      .Add("--columns", args->table.columns,
           fmt::format("Columns of the tree: {}", fmt::join(analyser::Columns(), ", ")), "NAMES")
      .Delimiter(',')
      .OneOf(analyser::Columns());
  options.Flag("--weights", args->weights, "Zeros, range and histogram of every weight too");
  options.Add("--ceilings", args->ceilings,
              "Predict how long layers take by what this machine (measured once, all cores) or a "
              "target can do at most, or by 1e9 operations and bytes a second",
              "host|TARGET|GFLOPS,GBYTES");
  options.Add("--format", args->format, "Output format", "table|json").OneOf({"table", "json"});
  AddListingFile(options, args->file);
  options.AddRule([args] { return TableProblem(*args); });
  AddWorkOptions(options, args->gateway);
  options.Examples(kAnalyseExamples);
  return [args](const StepContext& context) { return RunAnalyse(*args, context); };
}

}  // namespace quench::cli
