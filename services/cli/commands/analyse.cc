#include <fmt/format.h>

#include "common/base/status.h"
#include "services/analyser/analyser.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kAnalyseExamples[] = R"(Examples:
  quench analyse model.onnx                        layers, parameters, MACs, activation memory
  quench analyse model.onnx --format json          the same for scripts
  quench analyse bert.onnx --size batch=1 --size seq=128   symbolic dims counted at these sizes
  quench analyse model.so                          kernels, size by part, memory of a compiled library
  quench analyse model.onnx --gateway build-farm:7450)";

struct AnalyseArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::vector<std::string> sizes;
  std::string format = "table";
};

using Sizes = std::map<std::string, int64_t>;

absl::StatusOr<analyser::ModelReport> AnalyseHere(const AnalyseArgs& args, const Sizes& sizes,
                                                  const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  QUENCH_ASSIGN_OR_RETURN(const Graph canonical,
                          WithBatch(std::move(model.canonical), *args.model, context));
  return analyser::Analyse(model.imported, canonical, sizes, context);
}

absl::Status RunOnLibrary(const AnalyseArgs& args, const Sizes& sizes, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(RefuseModelOptions(*args.model, "a compiled library"));
  if (UsesGateway(*args.gateway)) {
    return InvalidArgument(
        "`{}` is a compiled library, which is analysed on this machine: leave "
        "out the gateway",
        args.model->model);
  }
  QUENCH_ASSIGN_OR_RETURN(const analyser::LibraryReport report,
                          analyser::AnalyseLibrary(args.model->model, sizes, context));
  fmt::print("{}", args.format == "json" ? analyser::ToJson(report) : analyser::ToTable(report));
  return absl::OkStatus();
}

absl::Status RunAnalyse(const AnalyseArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Sizes sizes, ParseSizes(args.sizes));
  const absl::StatusOr<FileKind> kind = KindOf(args.model->model);
  if (kind.ok() && *kind == FileKind::kArtifact) return RunOnLibrary(args, sizes, context);
  QUENCH_ASSIGN_OR_RETURN(const analyser::ModelReport report,
                          UsesGateway(*args.gateway)
                              ? AnalyseThere(*args.gateway, *args.model, sizes, context)
                              : AnalyseHere(args, sizes, context));
  fmt::print("{}", args.format == "json" ? analyser::ToJson(report) : analyser::ToTable(report));
  return absl::OkStatus();
}

}  // namespace

Action DeclareAnalyse(const Options& options) {
  auto args = std::make_shared<AnalyseArgs>();
  AddModelOptions(options, args->model);
  options.Add("--size", args->sizes,
              "Size at which a symbolic dim is counted (default: its smallest)", "NAME=N");
  options.Add("--format", args->format, "Output format", "table|json").OneOf({"table", "json"});
  AddWorkOptions(options, args->gateway);
  options.Examples(kAnalyseExamples);
  return [args](const StepContext& context) { return RunAnalyse(*args, context); };
}

}  // namespace quench::cli
