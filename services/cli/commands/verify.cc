#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "services/analyser/analyser.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"
#include "services/cli/remote.h"
#include "services/codegen/codegen.h"

namespace quench::cli {
namespace {

constexpr char kVerifyExamples[] = R"(Examples:
  quench verify model.onnx out/model.so                    against the interpreter (a reference build for big models)
  quench verify model.onnx out/model.so --samples 10 --tolerance 1e-5
  quench verify model.onnx out/model.so --per-layer        error of every layer, not only when something is wrong
  quench verify model.onnx out/model.so --gateway build-farm:7450   on the analyser's CPU

The error of an output is max |library - model| / max |model|. Exit code 1 when one exceeds the tolerance.)";

struct VerifyArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::string artifact;
  analyser::VerifyOptions options;
  std::vector<std::string> sizes;
  std::string format = "table";
  int opt_level = 3;
};

nlohmann::json ErrorsToJson(const std::vector<analyser::OutputError>& errors) {
  nlohmann::json list = nlohmann::json::array();
  for (const analyser::OutputError& error : errors)
    list.push_back({{"name", error.name}, {"error", error.error}});
  return list;
}

void PrintErrors(const char* title, const std::vector<analyser::OutputError>& errors,
                 double tolerance) {
  if (errors.empty()) return;
  fmt::print("{:<48} {:>12}\n", title, "error");
  for (const analyser::OutputError& error : errors) {
    fmt::print("{:<48} {:>12.3g}{}\n", error.name, error.error,
               error.error <= tolerance ? "" : "  out of tolerance");
  }
}

// The reference is the model as it stands; the other side is built as the library was.
absl::Status Build(const VerifyArgs& args, const Graph& graph, bool reference, bool taps,
                   const std::filesystem::path& library, const StepContext& context) {
  codegen::CompileOptions options;
  options.opt_level = reference ? 0 : args.opt_level;
  options.taps = taps ? codegen::Taps::kModelValues : codegen::Taps::kNone;
  options.passes = PassOptionsOf(*args.model);
  std::filesystem::path header = library;
  header.replace_extension(".h");
  Graph prepared = graph;
  if (!reference) {
    QUENCH_ASSIGN_OR_RETURN(prepared,
                            passes::RunPipeline(std::move(prepared), options.passes, context));
  }
  return codegen::Compile(prepared, options, library, header, context).status();
}

absl::StatusOr<analyser::VerifyReport> VerifyHere(const VerifyArgs& args,
                                                  analyser::VerifyOptions options,
                                                  const StepContext& context) {
  options.build = [&args](const Graph& graph, bool reference, bool taps,
                          const std::filesystem::path& library, const StepContext& step) {
    return Build(args, graph, reference, taps, library, step);
  };
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  Graph graph = std::move(model.canonical);
  if (args.model->batch > 0) {
    const passes::PassInfo* pass = passes::FindPass("set_batch_size");
    QUENCH_ASSIGN_OR_RETURN(
        graph, passes::RunPass(*pass, std::move(graph), PassOptionsOf(*args.model), context));
  }
  return analyser::Verify(graph, args.artifact, options, context);
}

absl::Status RunVerify(const VerifyArgs& args, const StepContext& context) {
  analyser::VerifyOptions options = args.options;
  options.passes = PassOptionsOf(*args.model);
  QUENCH_ASSIGN_OR_RETURN(options.sizes, ParseSizes(args.sizes));
  QUENCH_ASSIGN_OR_RETURN(
      const analyser::VerifyReport report,
      UsesGateway(*args.gateway)
          ? VerifyThere({*args.gateway, *args.model, args.artifact, options, args.opt_level},
                        context)
          : VerifyHere(args, options, context));
  if (args.format == "json") {
    const nlohmann::json json = {{"passed", report.passed},
                                 {"oracle", report.oracle},
                                 {"tolerance", options.tolerance},
                                 {"outputs", ErrorsToJson(report.outputs)},
                                 {"layers", ErrorsToJson(report.layers)},
                                 {"first_layer", report.first_layer},
                                 {"worst_layer", report.worst_layer}};
    fmt::print("{}\n", json.dump(2));
  } else {
    PrintErrors("layer", report.layers, options.tolerance);
    PrintErrors("output", report.outputs, options.tolerance);
    fmt::print("{} samples against the {}: {}\n", options.samples, report.oracle,
               report.passed ? "verified" : "MISMATCH");
  }
  if (report.passed) return absl::OkStatus();
  std::string text = fmt::format("`{}` does not compute what `{}` says (tolerance {:g})",
                                 args.artifact, args.model->model, options.tolerance);
  if (!report.first_layer.empty()) {
    text += fmt::format("; first layer out of tolerance: `{}`, worst: `{}`", report.first_layer,
                        report.worst_layer);
  }
  return absl::FailedPreconditionError(text);
}

}  // namespace

Action DeclareVerify(const Options& options) {
  auto args = std::make_shared<VerifyArgs>();
  AddModelOptions(options, args->model, true);
  options.Add("LIBRARY", args->artifact, "The compiled library", "MODEL.so").Required();
  options.Add("--samples", args->options.samples, "Random inputs to try", "N (default 3)")
      .Range(1, 100000);
  options.Add("--tolerance", args->options.tolerance, "Largest error allowed", "T (default 1e-4)")
      .AtLeast(0);
  options
      .Add("--oracle", args->options.oracle,
           "Compare with the interpreter, or a build of reference nests (default: by size)",
           "interpreter|reference")
      .OneOf({"interpreter", "reference"});
  options.Flag("--per-layer", args->options.per_layer, "Compare every layer");
  options.Add("--seed", args->options.seed, "Seed of the random inputs", "N (default 1)");
  options.Add("--threads", args->options.threads, "Threads the library runs on", "N (default 1)")
      .Range(1, 1024);
  options
      .Add("--opt-level", args->opt_level,
           "What the library was compiled with; --no-PASS flags likewise, to find a layer",
           "0|1|2|3 (default 3)")
      .Range(0, 3);
  options.Add("--size", args->sizes, "Size of a symbolic dim", "NAME=N");
  options.Add("--format", args->format, "Output format", "table|json").OneOf({"table", "json"});
  AddWorkOptions(options, args->gateway);
  options.Examples(kVerifyExamples);
  return [args](const StepContext& context) { return RunVerify(*args, context); };
}

}  // namespace quench::cli
