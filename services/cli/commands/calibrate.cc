#include "services/quantizer/calibrate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/cli/colour.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/device_flag.h"
#include "services/cli/model_source.h"
#include "services/cli/progress.h"
#include "services/cli/quantization.h"
#include "services/cli/remote.h"
#include "services/codegen/codegen.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {
namespace {

constexpr char kCalibrateExamples[] = R"(Examples:
  quench calibrate model.onnx --data samples             writes ./calibration.stats
  quench calibrate model.onnx --data more --add          adds these samples to it
  quench calibrate model.onnx --random 20 --output r.stats --force    without data: poor ranges, and a warning
  quench calibrate model.onnx --data photos --images imagenet,fit=stretch     .jpg and .png files
  quench calibrate calibration.stats                     prints ranges and histograms
  quench calibrate calibration.stats --format json       everything, for scripts

Samples are .npy, .npz (arrays named like the inputs) or .pb files, each with one sample or with
samples stacked along the first axis; .png or .jpg files (scaled according to --images; folders are
searched recursively); .zip archives of any of these; or folders with one file per input (NAME.npy,
or input_0.pb as in ONNX's test data). If the first axis of the model is symbolic, each file is
passed whole; with --batch 1 it is passed row by row. Use real inputs, preprocessed as the model
expects; a hundred are enough.)";

struct CalibrateArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  SampleOptions samples;
  std::string output = "./calibration.stats";
  RescueFlags rescue;
  bool add = false;
  bool force = false;
  bool show = false;
  bool use_cuda = false;
  std::string device;
  std::string format = "text";
  std::function<std::vector<std::string>()> given;  // the options that were
};

// How often which values: low bars are rare ones, on a scale of logarithms, so that outliers show.
std::string Bars(const quantizer::Histogram& histogram, size_t width) {
  const char* const kBars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const size_t bins = histogram.counts().size();
  width = std::min(width, bins);
  std::vector<double> columns(width, 0);
  for (size_t i = 0; i < bins; ++i) {
    columns[i * width / bins] += static_cast<double>(histogram.counts()[i]);
  }
  double most = 0;
  for (const double column : columns) most = std::max(most, std::log1p(column));
  std::string text;
  for (const double column : columns) {
    const double height = most == 0 ? 0 : std::log1p(column) / most * 8;
    text += kBars[static_cast<size_t>(std::ceil(height))];
  }
  return text;
}

nlohmann::json ToJson(const quantizer::Statistics& statistics) {
  nlohmann::json values = nlohmann::json::array();
  for (const auto& [name, value] : statistics.values) {
    nlohmann::json channels = nlohmann::json::array();
    for (const quantizer::ChannelStatistics& channel : value.channels) {
      const double elements = std::max<double>(1, static_cast<double>(channel.elements));
      channels.push_back(
          {{"low", channel.low}, {"high", channel.high}, {"mean", channel.sum / elements}});
    }
    values.push_back({{"name", name},
                      {"samples", value.samples},
                      {"elements", value.elements},
                      {"low", value.low},
                      {"high", value.high},
                      {"mean_low", value.sum_of_lows / static_cast<double>(value.samples)},
                      {"mean_high", value.sum_of_highs / static_cast<double>(value.samples)},
                      {"mean", value.mean()},
                      {"standard_deviation", std::sqrt(value.variance())},
                      {"histogram",
                       {{"first_edge", value.histogram.Edge(0)},
                        {"width", value.histogram.width()},
                        {"counts", value.histogram.counts()}}},
                      {"channels", channels}});
  }
  return {{"fingerprint", statistics.fingerprint},
          {"not_finite", statistics.not_finite},
          {"samples", statistics.samples},
          {"random", statistics.random},
          {"values", values}};
}

void Show(const quantizer::Statistics& statistics, const std::string& format) {
  if (format == "json") {
    fmt::print("{}\n",
               ToJson(statistics).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("{} {}samples of module {}\n", statistics.samples, statistics.random ? "random " : "",
             statistics.fingerprint.substr(0, 16));
  fmt::print("{:<40} {:>11} {:>11} {:>11} {:>11}  low to high, counts as logarithms\n", "value",
             "low", "high", "mean", "std");
  for (const auto& [name, value] : statistics.values) {
    fmt::print("{:<40} {:>11.4g} {:>11.4g} {:>11.4g} {:>11.4g}  {}\n", name, value.low, value.high,
               value.mean(), std::sqrt(value.variance()), Bars(value.histogram, 40));
  }
}

absl::StatusOr<bool> IsStatisticsFile(const std::string& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> file, FileMapping::Open(path));
  const std::span<const std::byte> head =
      file->bytes().first(std::min<size_t>(file->bytes().size(), 64));
  return quantizer::IsStatistics({reinterpret_cast<const char*>(head.data()), head.size()});
}

absl::StatusOr<quantizer::Statistics> StatisticsHere(const CalibrateArgs& args,
                                                     const StepContext& context,
                                                     std::string* ran_on) {
  QUENCH_RETURN_IF_ERROR(CheckDeviceHere(args.device));
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          PrepareForQuantization(*args.model, args.rescue, context));
  TapBuild taps(graph, args.device);
  return CalibrateHere(taps, args.samples, context, ran_on);
}

absl::Status RunCalibrate(const CalibrateArgs& args, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const bool shown, IsStatisticsFile(args.model->model));
  if (shown) {
    std::vector<std::string> given = args.given();
    const bool there = AsksForGateway(*args.gateway);
    std::erase_if(given, [=](const std::string& name) {
      return name == "--show" || name == "--format" || (name == "--gateway" && !there);
    });
    if (!given.empty()) {
      return InvalidArgument("`{}` holds statistics: {} appl{} to models", args.model->model,
                             fmt::join(given, ", "), given.size() == 1 ? "ies" : "y");
    }
    QUENCH_ASSIGN_OR_RETURN(const quantizer::Statistics statistics,
                            quantizer::ReadStatistics(args.model->model));
    Show(statistics, args.format);
    return absl::OkStatus();
  }
  if (args.samples.data.empty() == (args.samples.random == 0)) {
    return UsageError(
        InvalidArgument("no samples: give --data PATH, or --random N if there is no data"));
  }
  std::error_code error;
  const bool exists = std::filesystem::exists(args.output, error);
  if (exists && !args.add && !args.force) {
    return absl::AlreadyExistsError(fmt::format(
        "output `{}` exists; --add adds to its statistics, --force replaces them", args.output));
  }
  quantizer::Statistics before;
  if (exists && args.add) {
    QUENCH_ASSIGN_OR_RETURN(before, quantizer::ReadStatistics(args.output));
  }
  Plan plan = ImportPlan();
  plan += BuildPlan();
  plan += {{"calibrate", 60}};
  PlanProgress(std::move(plan));
  std::string ran_on = "cpu";
  QUENCH_ASSIGN_OR_RETURN(quantizer::Statistics statistics,
                          UsesGateway(*args.gateway)
                              ? CalibrateThere({*args.gateway, *args.model, args.rescue,
                                                args.samples, args.device, args.use_cuda},
                                               context, &ran_on)
                              : StatisticsHere(args, context, &ran_on));
  if (exists && args.add) {
    QUENCH_RETURN_IF_ERROR(Annotate(before.Merge(statistics), fmt::format("`{}`", args.output)));
    statistics = std::move(before);
  }
  QUENCH_RETURN_IF_ERROR(quantizer::WriteStatistics(statistics, args.output));
  if (args.use_cuda && ran_on == "cpu")
    PrintNote("--use-cuda: there is no GPU, samples ran on the CPU");
  WarnOf(statistics);
  if (args.show || args.format == "json") {
    Show(statistics, args.format);
  } else {
    fmt::print("{}\n  samples  {}\n  values   {}\n", args.output, statistics.samples,
               statistics.values.size());
    if (ran_on != "cpu") fmt::print("  device   {}\n", ran_on);
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclareCalibrate(const Options& options) {
  auto args = std::make_shared<CalibrateArgs>();
  AddModelOptions(options, args->model, SizeIs::kOfData);
  AddPassFlags(options, args->model, passes::PipelineSwitches());
  options.Describe("MODEL", "Model file or IR module; or a statistics file, to print it");
  options.In("Input").Add("--data,-d", args->samples.data, "Samples: a file, folder or ZIP archive",
                          "PATH");
  options.In("Input")
      .Add("--random", args->samples.random, "Use N random samples if no real ones are available",
           "N")
      .AtLeast(1);
  AddImageFlag(options, args->samples.images).Needs({"--data"});
  options.In("Input")
      .Rare()
      .Add("--seed", args->samples.seed, "Seed of the random samples", "N (default 1)")
      .Needs({"--random"});
  options.AddRule([args] { return SizesProblem(*args->model, args->samples.random > 0); });
  options.In("Output").Add("--output,-o", args->output, "Statistics file to write",
                           "FILE (default ./calibration.stats)");
  AddRescueFlags(options, args->rescue);
  options.Flag("--add", args->add, "Add to the statistics already in FILE");
  options.In("Output").Flag("--force,-f", args->force, "Replace FILE").Excludes({"--add"});
  options.Rare()
      .Add("--workers", args->samples.workers,
           "Number of samples to run in parallel; does not affect the statistics",
           "N (default: one for each CPU)")
      .Range(1, 1024);
  AddDeviceFlag(options, args->device);
  options.Rare()
      .Flag(
          "--use-cuda", args->use_cuda,
          "Run samples on the first GPU, or, if there is none, on the CPU with a note; a gateway's "
          "services have GPUs of their own. Without --device and --gateway this is the default")
      .Excludes({"--device"});
  options.Flag("--show", args->show, "Print the statistics");
  AddFormat(options, args->format);
  AddWorkOptions(options, args->gateway);
  options.Examples(kCalibrateExamples);
  args->given = [options] { return options.Given(); };
  return [args](const StepContext& context) {
    args->samples.sizes = TakeDataSizes(*args->model);
    return RunCalibrate(*args, context);
  };
}

}  // namespace quench::cli
