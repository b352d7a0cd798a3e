#include "services/analyser/verify.h"

#include <fmt/format.h>

#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/device_flag.h"
#include "services/cli/encryption.h"
#include "services/cli/model_source.h"
#include "services/cli/quantization.h"
#include "services/cli/remote.h"
#include "services/codegen/codegen.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {
namespace {

constexpr char kVerifyExamples[] = R"(Examples:
  quench verify model.onnx out/model.so                    are kernels and graph rewrites correct?
  quench verify model.onnx out/model.so --samples 10 --tolerance 1e-5
  quench verify model.onnx out/model.so --per-layer        prints every layer's error even if all are in tolerance
  quench verify model.onnx out/model.so --float16 --calibration calibration.stats   on random inputs with the ranges of the samples
  quench verify model.onnx out/model.so --gateway build-farm:7450   on the analyser's CPU

Random inputs are valid for the model: indices are in range, axes exist, sizes, lengths and masks fit together.

Prints two results (three with f16 or quantized values) and exits with code 1 if any of them is a
mismatch:
  kernels    Compares the library with the graph after all passes. Integers must be bit-exact. The error of floats is
             max |library - graph| / max |graph|. Its tolerance is that of the coarsest type involved: 1e-4 for f32;
             for narrower types, units in the last place of the largest element (bf16: 4, i.e. 0.031; f16: 16, i.e.
             0.0156, because some CPUs accumulate f16 in f16).
  rewrites   Compares the library with the model before any pass, run in the interpreter. In a model with quantized
             values, each group of operators between two quantizations gets the library's own integers as inputs and
             is computed in float, as QuantizeLinear and DequantizeLinear define it. An integer may then be off by one
             only if the number being rounded is within 1e-3 of a tie. SQNR is measured over whole runs. In other
             models, outputs are compared within the tolerance.
  magnitudes  Repeats the comparison on one more sample with large values: the float inputs of the first sample times
             the smallest power of two that brings some value of the model to a tenth of 65504 (f16; elsewhere just
             below half of it), or to nine tenths of the range of its integers. Values that --float16 keeps in f32
             (squares, powers, exponentials and sums) are ignored in choosing the factor, so that one wrongly stored
             as f16 overflows. The model itself stays finite. f16 is compared with the model before any pass, within
             the tolerance or 16 times the effect on the model of rounding its inputs to f16, whichever is larger (at
             most 2). Integers: see `kernels` and `rewrites`. With --calibration, all samples already have the
             ranges seen in calibration, and there is no extra one.)";

struct VerifyArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::string artifact, calibration;
  std::shared_ptr<KeyFlags> key = std::make_shared<KeyFlags>();
  analyser::VerifyOptions options;
  double tolerance = -1;  // below 0: by type
  std::vector<std::string> sizes;
  std::string format = "text";
  int opt_level = 3;
};

// The GPU architecture of the library's code that runs here; "": that is code for CPUs.
absl::StatusOr<std::string> ArchitectureOf(const VerifyArgs& args,
                                           const analyser::VerifyOptions& options) {
  const std::string gpus = "cuda-";  // variant "cuda-sm_86"
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> library,
                          Artifact::Open(args.artifact, {1, options.device}, options.key));
  return library->variant().starts_with(gpus) ? library->variant().substr(gpus.size()) : "";
}

// The reference is the graph as it is given, for this CPU; the other side is built as the library was,
// for GPUs of architecture `arch` if there is one.
absl::Status Build(const VerifyArgs& args, const Graph& graph, bool reference,
                   const std::string& arch, const std::filesystem::path& library,
                   const StepContext& context) {
  codegen::CompileOptions options;
  options.opt_level = reference ? 0 : args.opt_level;
  if (!reference && !arch.empty()) {
    options.target = "cuda -arch=" + arch;
    options.host_target = "host";
  }
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
  QUENCH_ASSIGN_OR_RETURN(const std::string arch, ArchitectureOf(args, options));
  const auto build = [&](bool reference) {
    return [&args, &arch, reference](const Graph& graph, const std::filesystem::path& library,
                                     const StepContext& step) {
      return Build(args, graph, reference, arch, library, step);
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

// The mismatch, in one sentence.
absl::Status Mismatch(const VerifyArgs& args, const analyser::VerifyReport& report) {
  std::string text = fmt::format("the outputs of `{}` differ from those of `{}`", args.artifact,
                                 args.model->model);
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
            : fmt::format("; rewrites: {} values are quantized differently, the first at node `{}`",
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
        "--key: keys and passwords are never sent to a gateway; verify encrypted libraries without "
        "--gateway");
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
  AddModelOptions(options, args->model, SizeIs::kOfData);
  AddFloat16Flags(options, args->model);
  AddPassFlags(options, args->model, PassesThatShow());
  options.Add("LIBRARY", args->artifact, "Compiled library", "MODEL.so").Required();
  options.In("Input")
      .Add("--samples", args->options.samples, "Number of random inputs", "N (default 3)")
      .Range(1, 100000);
  options
      .Add("--tolerance", args->tolerance,
           "Largest allowed error of floats, instead of the default for their type; 0: bit-exact. "
           "Integers must always be bit-exact; quantized values keep their own rule",
           "T (default by type)")
      .AtLeast(0);
  options.Rare()
      .Add("--oracle", args->options.oracle,
           "Reference that kernels are compared with: the interpreter, or a build at --opt-level 0 "
           "(default from 20e9 multiply-accumulates on)",
           "interpreter|reference")
      .OneOf({"interpreter", "reference"});
  options.In("Input").Add(
      "--calibration,-c", args->calibration,
      "Statistics written by `quench calibrate`: random inputs get the ranges that were seen. With "
      "--float16, give the file that the library was compiled with",
      "FILE");
  options.Flag(
      "--per-layer", args->options.per_layer,
      "Compare every value that the compiled code computes; an error if none can be compared");
  options.In("Input").Rare().Add("--seed", args->options.seed, "Seed of the random inputs",
                                 "N (default 1)");
  options
      .Add("--threads", args->options.threads, "Number of threads for the library", "N (default 1)")
      .Range(1, 1024);
  options
      .Add("--opt-level", args->opt_level,
           "Optimization level that the library was compiled with (also for --no-PASS); "
           "changing it helps to find a wrong layer",
           "0|1|2|3 (default 3)")
      .Range(0, 3);
  AddDeviceFlag(options, args->options.device);
  AddKeyFlags(options, args->key);
  AddFormat(options, args->format);
  AddWorkOptions(options, args->gateway);
  options.Examples(kVerifyExamples);
  return [args](const StepContext& context) {
    args->sizes = TakeDataSizes(*args->model);
    return RunVerify(*args, context);
  };
}

}  // namespace quench::cli
