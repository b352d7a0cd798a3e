#include "services/quantizer/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "services/cli/colour.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"
#include "services/cli/module_files.h"
#include "services/cli/options_file.h"
#include "services/cli/other_runtimes.h"
#include "services/cli/quantization.h"
#include "services/cli/remote.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {
namespace {

constexpr char kQuantizeExamples[] = R"(Examples:
  quench quantize model.onnx --calibration calibration.stats --per-channel
                                                       8-bit module in ./quantized.qir
  quench quantize model.onnx -c calibration.stats --method entropy --output model.int8.onnx
                                                       as ONNX, with QuantizeLinear and DequantizeLinear:
                                                       u8 activations, i8 weights
  quench quantize model.onnx -c calibration.stats --per-channel --for onnxruntime -o model.int8.onnx
                                                       ONNX Runtime then computes every matrix product in integers
  quench quantize model.onnx -c calibration.stats --for tensorrt -o model.trt.onnx
                                                       i8 with zero point 0, per-channel scales, float biases
  quench quantize model.onnx -c equalized.stats --equalize --bias-correction
                                                       for channels with very uneven ranges, as in MobileNets
  quench quantize model.onnx --type dynamic            ranges measured in each run; no calibration
  quench quantize model.onnx -c c.stats --max-drop 0.5% --evaluation-data test --labels test
                                                       quantizes as many layers as half a point of accuracy allows
  quench quantize gpt.onnx --type weights --kernel-dtype int4 --block-size 64 --method mse
                                                       4-bit weights in matrix products, float activations
  quench quantize gpt.onnx --type weights --kernel-dtype int4 --rounding adaptive --rounding-data x
                                                       rounds each weight up or down, whichever is better
  quench quantize model.onnx -c calibration.stats --options project.txtpb
                                                       options from the project's file, as for `quench compile`
  quench quantize model.onnx -c calibration.stats --exclude 'head.*' --exclude op:Gemm
                                                       keeps these nodes in float

The statistics must have been written by `quench calibrate` for the same model with the same options.)";

struct QuantizeArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::shared_ptr<QuantizeFlags> how = std::make_shared<QuantizeFlags>();
  std::string calibration;
  std::string images;
  std::string options;  // a file
  std::string output = "./quantized.qir";
  std::string runtime;  // that reads it; empty: any
  bool force = false;
  std::string format = "text";
  bool external_weights = false;
  bool type_given = false;
};

void Print(const QuantizeArgs& args, const Quantization& quantization) {
  const quantizer::QuantizeReport& report = quantization.report;
  if (args.format == "json") {
    for (const std::string& warning : report.warnings) PrintWarning(warning);
    nlohmann::json json = CountsToJson(report);
    json["output"] = args.output;
    json["layers"] = LayersToJson(report);
    json["warnings"] = report.warnings;
    if (quantization.rounding) json["rounding"] = RoundingToJson(*quantization.rounding);
    if (quantization.selection) json["selection"] = SelectionToJson(*quantization.selection);
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("{}\n", args.output);
  PrintLayers(quantization);
  fmt::print("  values   {} with static ranges, {} with dynamic ranges\n  weights  {} tensors\n",
             report.static_values, report.dynamic_values, report.weights);
  if (args.how->options.bias_correction)
    fmt::print("  biases   {} corrected\n", report.corrected_biases);
}

absl::StatusOr<QuantizedModel> MadeHere(const QuantizeArgs& args, const StepContext& context) {
  std::optional<quantizer::Statistics> statistics;
  if (!args.calibration.empty()) {
    QUENCH_ASSIGN_OR_RETURN(statistics, quantizer::ReadStatistics(args.calibration));
  }
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          PrepareForQuantization(*args.model, args.how->rescue, context));
  TapBuild taps(graph);
  return QuantizeHere(taps, statistics ? &*statistics : nullptr, *args.how,
                      PassOptionsOf(*args.model), context);
}

absl::StatusOr<QuantizedModel> MadeThere(const QuantizeArgs& args, const StepContext& context) {
  QuantizeJob job{*args.how, {}, args.calibration};
  job.samples.images = args.images;
  return QuantizeThere({*args.gateway, *args.model, job}, context);
}

absl::Status RunQuantize(const QuantizeArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(KindOf(args.model->model).status());
  if (!args.force) QUENCH_RETURN_IF_ERROR(RefuseExisting(args.output, args.external_weights));
  BudgetFlags& budget = *args.how->budget;
  QUENCH_RETURN_IF_ERROR(CheckBudget(budget, budget.data));
  RoundingFlags& rounding = *args.how->rounding;
  QUENCH_RETURN_IF_ERROR(CheckRoundingFlags(rounding, false));
  if (!args.images.empty() && budget.data.empty() && rounding.samples.data.empty()) {
    return InvalidArgument("--images needs --evaluation-data or --rounding-data");
  }
  rounding.samples.images = args.images;
  QUENCH_ASSIGN_OR_RETURN(budget.format, SampleFormatOf(args.images));
  if (args.calibration.empty() && !args.type_given) {
    return UsageError(InvalidArgument(
        "no statistics to derive ranges from: give --calibration FILE (from `quench calibrate`), "
        "--type dynamic (each run measures its ranges, often slower than float) or --type "
        "weights"));
  }
  QUENCH_ASSIGN_OR_RETURN(const QuantizedModel quantized, UsesGateway(*args.gateway)
                                                              ? MadeThere(args, context)
                                                              : MadeHere(args, context));
  QUENCH_RETURN_IF_ERROR(std::filesystem::path(args.output).extension() == ".onnx"
                             ? importer::ExportOnnx(quantized.graph, args.output, context)
                             : WriteModule(quantized.graph, args.output, args.external_weights));
  Print(args, quantized.quantization);
  return absl::OkStatus();
}

}  // namespace

Action DeclareQuantize(const Options& options) {
  auto args = std::make_shared<QuantizeArgs>();
  AddModelOptions(options, args->model);
  AddPassFlags(options, args->model, passes::PipelineSwitches());
  AddPassFlags(options, args->model, {"fuse_groups"});  // groups decide where integers stand
  options.In("Input").Add("--calibration,-c", args->calibration,
                          "Statistics written by `quench calibrate`", "FILE");
  options
      .Add("--activation-dtype", args->how->activation_dtype, "Type of quantized activations",
           "int8|uint8 (default int8, uint8 for .onnx)")
      .OneOf({"int8", "uint8"});
  AddQuantizeFlags(options, args->how);
  AddImageFlag(options, args->images);
  options.In("Output").Add(
      "--output,-o", args->output,
      "File to write: ONNX if it ends in .onnx, IR text if in .txt, else a binary IR module",
      "FILE (default ./quantized.qir)");
  options
      .Add("--for", args->runtime,
           "Runtime that will run the .onnx file; chooses types and ranges that it computes in "
           "integers. onnxruntime: u8 activations, i8 weights, integers around every matrix "
           "product. tensorrt (from its documentation, untested): i8 with zero point 0, "
           "per-channel weights, float biases",
           fmt::format("{}", fmt::join(OtherRuntimes(), "|")))
      .OneOf(OtherRuntimes())
      .Needs({"--calibration"});
  options.AddRule([args, options] {
    return ProblemOfRuntime(args->runtime, args->output, options.Given(), *args->how);
  });
  AddWeightsFlag(options, args->external_weights, {});
  options.AddRule([args] { return WeightsProblem(args->output, args->external_weights); });
  options.In("Output").Flag("--force,-f", args->force, "Replace FILE");
  AddFormat(options, args->format);
  AddOptionsFile(options, FileReader::kQuantize, args->options, [](const OptionsFile&) {});
  AddWorkOptions(options, args->gateway);
  options.Examples(kQuantizeExamples);
  return [args, options](const StepContext& context) {
    const std::vector<std::string> given = options.Given();
    args->type_given = std::ranges::find(given, "--type") != given.end();
    FillTypes(args->runtime, args->output, options.Given(), *args->how);
    return RunQuantize(*args, context);
  };
}

}  // namespace quench::cli
