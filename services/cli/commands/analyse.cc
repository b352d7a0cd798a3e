#include <fmt/format.h>

#include "common/base/status.h"
#include "services/analyser/analyser.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"

namespace quench::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  quench analyse model.onnx                        layers, parameters, MACs, activation memory
  quench analyse model.onnx --format json          the same for scripts
  quench analyse bert.onnx --size batch=1 --size seq=128   symbolic dims counted at these sizes)";

struct AnalyseArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::vector<std::string> sizes;
  std::string format = "table";
};

absl::Status RunAnalyse(const AnalyseArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const auto sizes, ParseSizes(args.sizes));
  QUENCH_ASSIGN_OR_RETURN(const importer::Imported model, LoadModel(*args.model, context));
  QUENCH_ASSIGN_OR_RETURN(const analyser::ModelReport report,
                          analyser::Analyse(model.imported, model.canonical, sizes, context));
  fmt::print("{}", args.format == "json" ? analyser::ToJson(report) : analyser::ToTable(report));
  return absl::OkStatus();
}

}  // namespace

Action DeclareAnalyse(const Options& options) {
  auto args = std::make_shared<AnalyseArgs>();
  AddModelOptions(options, args->model, false);
  options.Add("--size", args->sizes,
              "Size at which a symbolic dim is counted (default: its smallest)", "NAME=N");
  options.Add("--format", args->format, "Output format", "table|json").OneOf({"table", "json"});
  options.Examples(kExamples);
  return [args](const StepContext& context) { return RunAnalyse(*args, context); };
}

}  // namespace quench::cli
