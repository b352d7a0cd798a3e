#include "services/analyser/verify.h"

#include <fmt/format.h>

#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/encryption.h"
#include "services/cli/model_source.h"
#include "services/cli/quantization.h"
#include "services/cli/remote.h"
#include "services/codegen/codegen.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {
namespace {

constexpr char kVerifyExamples[] = R"(Examples:
  quench verify model.onnx out/model.so                    are kernels and rewrites right?
  quench verify model.onnx out/model.so --samples 10 --tolerance 1e-5
  quench verify model.onnx out/model.so --per-layer        error of every layer, not only when something is wrong
  quench verify model.onnx out/model.so --float16 --calibration calibration.stats   on inputs as wide as samples
  quench verify model.onnx out/model.so --gateway build-farm:7450   on the analyser's CPU

Random inputs are what the model can take: indices that are there, axes, sizes that fit one another, lengths, masks.

Two results, with f16 and quantized values a third, and exit code 1 when one of them is a mismatch:
  kernels    The library beside the graph that the passes made of the model. Integers are the same bit for bit. The error
             of floats is max |library - graph| / max |graph|; the tolerance is that of the coarsest type they are computed
             from: 1e-4 for f32, units in the last place of the largest element for narrower ones (bf16 4, 0.031; f16 16, 0.0156,
             since some CPUs add f16 in f16).
  rewrites   The library beside the model as it was before any pass, by the interpreter. Of a model with quantized values,
             each group of operators between two of them gets the library's own integers and is computed in float, as
             QuantizeLinear and DequantizeLinear say: an integer may be one step off where the number that is rounded lies
             within 1e-3 of a tie, and nowhere else. SQNR is that of whole runs. Of other models, outputs by the tolerance.
  magnitudes One more sample, the floats of the first times the least power of two with which a value of the model comes to a
             tenth of 65504 (f16, else below half of it), or to nine tenths of what its scale has integers for. Squares,
             powers, exponentials and sums, which --float16 keeps in f32, count for nothing there, so one that was stored as
             f16 overflows. The model itself stays finite. f16 is held against the model before any pass: by the tolerance,
             or 16 times what rounding the inputs to f16 does to the model, if that is more (2 at most). Integers are held
             against both as above. With --calibration, all samples are as wide as inputs were, and there is none more.)";

struct VerifyArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::string artifact, calibration;
  std::shared_ptr<KeyFlags> key = std::make_shared<KeyFlags>();
  analyser::VerifyOptions options;
  double tolerance = -1;  // below 0: by type
  std::vector<std::string> sizes;
  std::string format = "table";
  int opt_level = 3;
};

// The reference is the graph as it is given; the other side is built as the library was.
absl::Status Build(const VerifyArgs& args, const Graph& graph, bool reference,
                   const std::filesystem::path& library, const StepContext& context) {
  codegen::CompileOptions options;
  options.opt_level = reference ? 0 : args.opt_level;
  options.taps = codegen::Taps::kRunningCode;
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
  const auto build = [&args](bool reference) {
    return [&args, reference](const Graph& graph, const std::filesystem::path& library,
                              const StepContext& step) {
      return Build(args, graph, reference, library, step);
    };
  };
  options.build_twin = build(false);
  options.build_reference = build(true);
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(*args.model, context));
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          WithBatch(std::move(model.canonical), *args.model, context));
  return analyser::Verify(graph, args.artifact, options, context);
}

// How wide inputs were on samples, and with --float16 what the compiler knew of values. Statistics may
// be of the float model that a quantized one was made from: of that they know the inputs.
absl::Status TakeStatistics(const VerifyArgs& args, analyser::VerifyOptions& options,
                            const StepContext& context) {
  if (args.calibration.empty()) return absl::OkStatus();
  if (args.model->float16) {
    QUENCH_ASSIGN_OR_RETURN(args.model->magnitudes,
                            MagnitudesOf(args.calibration, *args.model, {}, context));
  }
  QUENCH_ASSIGN_OR_RETURN(const quantizer::Statistics statistics,
                          quantizer::ReadStatistics(args.calibration));
  for (const auto& [name, value] : statistics.values)
    options.ranges[name] = {value.low, value.high};
  return absl::OkStatus();
}

// What is wrong, in one sentence.
absl::Status Mismatch(const VerifyArgs& args, const analyser::VerifyReport& report) {
  std::string text =
      fmt::format("`{}` does not compute what `{}` says", args.artifact, args.model->model);
  const analyser::LayersReport& layers = report.kernels.layers;
  if (!report.kernels.passed) text += "; kernels: an output is out of tolerance";
  if (layers.compared && layers.values.empty()) text += ", no layer could be compared";
  if (!layers.first.empty()) {
    text += fmt::format(", first layer out of tolerance: `{}`, worst: `{}`", layers.first,
                        layers.worst);
  }
  if (report.rewrites.checked && !report.rewrites.passed) {
    text +=
        report.rewrites.failures.empty()
            ? "; rewrites: an output is out of tolerance"
            : fmt::format("; rewrites: {} values are quantized otherwise, the first at node `{}`",
                          report.rewrites.failures.size(), report.rewrites.failures[0].node);
  }
  for (const analyser::MagnitudeReport& each : report.magnitudes) {
    if (!each.checked || each.passed || each.outputs.empty()) continue;
    text += fmt::format("; magnitudes: an output is out of tolerance where `{}` is {:.4g}",
                        each.value, each.magnitude);
    if (!each.first.empty())
      text += fmt::format(", the first value that is not finite: `{}`", each.first);
  }
  return absl::FailedPreconditionError(text);
}

absl::Status RunVerify(const VerifyArgs& args, const StepContext& context) {
  analyser::VerifyOptions options = args.options;
  QUENCH_RETURN_IF_ERROR(TakeStatistics(args, options, context));
  options.passes = PassOptionsOf(*args.model);
  if (args.tolerance >= 0) options.tolerance = args.tolerance;
  QUENCH_ASSIGN_OR_RETURN(options.sizes, ParseSizes(args.sizes));
  if (!args.key->key.empty() && UsesGateway(*args.gateway)) {
    return InvalidArgument(
        "--key: keys and passwords stay in this process; verify encrypted libraries without a "
        "gateway");
  }
  QUENCH_ASSIGN_OR_RETURN(options.key, KeyOf(*args.key));
  QUENCH_ASSIGN_OR_RETURN(
      const analyser::VerifyReport report,
      UsesGateway(*args.gateway)
          ? VerifyThere({*args.gateway, *args.model, args.artifact, options, args.opt_level},
                        context)
          : VerifyHere(args, options, context));
  fmt::print("{}", args.format == "json" ? analyser::ToJson(report, options.samples)
                                         : analyser::ToTable(report, options.samples));
  return report.passed ? absl::OkStatus() : Mismatch(args, report);
}

}  // namespace

Action DeclareVerify(const Options& options) {
  auto args = std::make_shared<VerifyArgs>();
  AddModelOptions(options, args->model);
  AddFloat16Flags(options, args->model);
  AddPassFlags(options, args->model, PassesThatShow());
  options.Add("LIBRARY", args->artifact, "The compiled library", "MODEL.so").Required();
  options.Add("--samples", args->options.samples, "Random inputs to try", "N (default 3)")
      .Range(1, 100000);
  options
      .Add("--tolerance", args->tolerance,
           "Largest error allowed of floats, instead of that of their type; 0: bit for bit. "
           "Integers "
           "are always compared bit for bit, and the rule for quantized values stays as it is",
           "T (default by type)")
      .AtLeast(0);
  options
      .Add("--oracle", args->options.oracle,
           "What kernels are compared with: the interpreter, or a build of reference nests "
           "(default: by "
           "size, the latter from 20 thousand million multiply-accumulates on)",
           "interpreter|reference")
      .OneOf({"interpreter", "reference"});
  options.Add(
      "--calibration,-c", args->calibration,
      "Statistics of `quench calibrate`: random floats are as wide as inputs were on samples, and "
      "with --float16 what the library was compiled with",
      "FILE");
  options.Flag("--per-layer", args->options.per_layer,
               "Compare every value of the code that runs; fails if none can be compared");
  options.Add("--seed", args->options.seed, "Seed of the random inputs", "N (default 1)");
  options.Add("--threads", args->options.threads, "Threads the library runs on", "N (default 1)")
      .Range(1, 1024);
  options
      .Add("--opt-level", args->opt_level,
           "What the library was compiled with; --no-PASS flags likewise, to find a layer",
           "0|1|2|3 (default 3)")
      .Range(0, 3);
  AddKeyFlags(options, args->key);
  options.Add("--size", args->sizes, "Size of a symbolic dim; only that of a batch may be left out",
              "NAME=N");
  options.Add("--format", args->format, "Output format", "table|json").OneOf({"table", "json"});
  AddWorkOptions(options, args->gateway);
  options.Examples(kVerifyExamples);
  return [args](const StepContext& context) { return RunVerify(*args, context); };
}

}  // namespace quench::cli
