#include "services/quantizer/quantize.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"
#include "services/cli/quantization.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  quench quantize model.onnx --calibration calibration.stats --per-channel
                                                       8-bit module in ./quantized.qir
  quench quantize model.onnx -c calibration.stats --method entropy --output model.int8.onnx
                                                       as ONNX, with QuantizeLinear and DequantizeLinear
  quench quantize model.onnx -c equalized.stats --equalize --bias-correction
                                                       channels of very uneven ranges, as MobileNets have
  quench quantize model.onnx --type dynamic            ranges of each run, no calibration
  quench quantize model.onnx -c calibration.stats --exclude 'head.*' --exclude op:Gemm
                                                       what must stay in float

--calibration is what `quench calibrate` wrote for the same model with the same options.)";

struct QuantizeArgs {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  quantizer::QuantizeOptions options;
  std::string calibration;
  std::string activation_dtype = "int8", kernel_dtype, bias_dtype = "int32";
  std::string type = "any";
  std::string output = "./quantized.qir";
  bool equalize = false;
  bool force = false;
  std::string format = "table";
};

quantizer::QuantizeOptions OptionsOf(const QuantizeArgs& args) {
  quantizer::QuantizeOptions options = args.options;
  options.activation_dtype = *ParseDataType(args.activation_dtype);
  if (!args.kernel_dtype.empty()) options.kernel_dtype = *ParseDataType(args.kernel_dtype);
  options.bias_dtype = *ParseDataType(args.bias_dtype);
  options.passes = PassOptionsOf(*args.model);
  options.source = args.type == "static"    ? quantizer::RangeSource::kStatic
                   : args.type == "dynamic" ? quantizer::RangeSource::kDynamic
                                            : quantizer::RangeSource::kAny;
  return options;
}

void Print(const QuantizeArgs& args, const quantizer::QuantizeReport& report) {
  for (const std::string& warning : report.warnings) {
    fmt::print(stderr, "quench: warning: {}\n", warning);
  }
  if (args.format == "json") {
    nlohmann::json layers = nlohmann::json::array();
    for (const quantizer::LayerChoice& layer : report.layers) {
      layers.push_back({{"node", layer.node},
                        {"op", layer.op},
                        {"quantized", layer.quantized},
                        {"reason", layer.reason}});
    }
    const nlohmann::json json = {{"output", args.output},
                                 {"static_values", report.static_values},
                                 {"dynamic_values", report.dynamic_values},
                                 {"weights", report.weights},
                                 {"corrected_biases", report.corrected_biases},
                                 {"layers", layers},
                                 {"warnings", report.warnings}};
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  int quantized = 0;
  for (const quantizer::LayerChoice& layer : report.layers) quantized += layer.quantized ? 1 : 0;
  fmt::print(
      "{}\n  layers   {} of {} are integers\n  values   {} with fixed ranges, {} with those of "
      "each run\n  weights  {} tensors\n",
      args.output, quantized, report.layers.size(), report.static_values, report.dynamic_values,
      report.weights);
  if (args.options.bias_correction)
    fmt::print("  biases   {} corrected\n", report.corrected_biases);
  for (const quantizer::LayerChoice& layer : report.layers) {
    if (!layer.quantized)
      fmt::print("  float    {} ({}): {}\n", layer.node, layer.op, layer.reason);
  }
}

absl::Status RunQuantize(const QuantizeArgs& args, const StepContext& context) {
  std::error_code error;
  if (!args.force && std::filesystem::exists(args.output, error)) {
    return absl::AlreadyExistsError(
        fmt::format("output `{}` exists; --force replaces it", args.output));
  }
  std::optional<quantizer::Statistics> statistics;
  if (!args.calibration.empty()) {
    QUENCH_ASSIGN_OR_RETURN(statistics, quantizer::ReadStatistics(args.calibration));
  }
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          PrepareForQuantization(*args.model, args.equalize, context));
  QUENCH_ASSIGN_OR_RETURN(
      const quantizer::QuantizedModule quantized,
      quantizer::Quantize(graph, statistics ? &*statistics : nullptr, OptionsOf(args), context));
  QUENCH_RETURN_IF_ERROR(std::filesystem::path(args.output).extension() == ".onnx"
                             ? importer::ExportOnnx(quantized.graph, args.output, context)
                             : WriteModule(quantized.graph, args.output));
  Print(args, quantized.report);
  return absl::OkStatus();
}

std::string MethodHelp() {
  std::string text = "How ranges are chosen from statistics:";
  for (const quantizer::MethodInfo& method : quantizer::AllMethods()) {
    text += fmt::format("{} {}: {}", &method == quantizer::AllMethods().data() ? "" : ";",
                        method.name, method.doc);
  }
  return text;
}

}  // namespace

Action DeclareQuantize(const Options& options) {
  auto args = std::make_shared<QuantizeArgs>();
  AddModelOptions(options, args->model, true);
  options.Add("--calibration,-c", args->calibration, "Statistics of `quench calibrate`", "FILE");
  options
      .Add("--type", args->type,
           "Ranges of activations: static (calibrated), dynamic (of each run), any (static where "
           "there are statistics)",
           "static|dynamic|any (default any)")
      .OneOf({"static", "dynamic", "any"});
  std::vector<std::string> methods;
  for (const quantizer::MethodInfo& method : quantizer::AllMethods())
    methods.emplace_back(method.name);
  options
      .Add("--method", args->options.method, MethodHelp(),
           fmt::format("{} (default {})", fmt::join(methods, "|"), methods[0]))
      .OneOf(methods);
  options
      .Add("--percentile", args->options.percentile, "Of the method percentile", "P (default 99)")
      .Range(50, 100);
  options
      .Add("--activation-dtype", args->activation_dtype, "Of activations",
           "int8|uint8 (default int8)")
      .OneOf({"int8", "uint8"});
  options
      .Add("--kernel-dtype", args->kernel_dtype, "Of weights",
           "int8|uint8 (default: that of activations)")
      .OneOf({"int8", "uint8"});
  options.Add("--bias-dtype", args->bias_dtype, "Of biases", "int32|int8 (default int32)")
      .OneOf({"int32", "int8"});
  options.Flag("--per-channel", args->options.per_channel,
               "A scale for each output channel of weights, instead of one for all");
  options.Flag("--symmetric", args->options.symmetric,
               "Ranges of activations are [-m, m]; those of weights always are");
  options.Flag("--bias-correction", args->options.bias_correction,
               "Biases take back what rounding the weights adds to the mean (needs --calibration)");
  options.Flag("--equalize", args->equalize,
               "Even out the ranges of channels across layers first; calibrate with it too");
  options.Flag("--power-of-two", args->options.power_of_two, "Scales are powers of two");
  options.Add("--include", args->options.include,
              "Quantize only these nodes: a name, a pattern, op:NAME", "PATTERN");
  options.Add("--exclude", args->options.exclude, "Leave these nodes in float", "PATTERN");
  options.Add("--output,-o", args->output, "The module: ONNX for .onnx, text for .txt, else binary",
              "FILE (default ./quantized.qir)");
  options.Flag("--force,-f", args->force, "Replace FILE");
  options.Add("--format", args->format, "Format of the report", "table|json")
      .OneOf({"table", "json"});
  options.Examples(kExamples);
  return [args](const StepContext& context) { return RunQuantize(*args, context); };
}

}  // namespace quench::cli
