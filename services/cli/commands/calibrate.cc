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
#include "services/cli/commands/declarations.h"
#include "services/cli/model_source.h"
#include "services/cli/quantization.h"
#include "services/cli/remote.h"
#include "services/codegen/codegen.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {
namespace {

constexpr char kCalibrateExamples[] = R"(Examples:
  quench calibrate model.onnx --data samples             statistics in ./calibration.stats
  quench calibrate model.onnx --data more --add          of these samples too
  quench calibrate model.onnx --random 20 --output r.stats --force    no data at hand: a warning, and poor ranges
  quench calibrate model.onnx --data photos --images imagenet,fit=stretch     of .jpg and .png files
  quench calibrate calibration.stats                     show what was seen: ranges and histograms
  quench calibrate calibration.stats --format json       everything, for scripts

Samples are .npy, .npz (arrays by the inputs' names) or .pb files, one sample each or stacked along the first axis,
.png or .jpg files (--images says how they are scaled; folders of folders are walked), .zip archives of any of these,
or folders with a file for each input (NAME.npy, or input_0.pb as in ONNX's test data). A model with a symbolic first
axis takes each file whole; --batch 1 takes it row by row. Real inputs, preprocessed as the model wants them: a hundred
are enough.)";

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
  std::string format = "table";
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
                                                     const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          PrepareForQuantization(*args.model, args.rescue, context));
  TapBuild taps(graph);
  return CalibrateHere(taps, args.samples, context);
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
    return InvalidArgument("samples are wanted: --data PATH, or --random N without any data");
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
  QUENCH_ASSIGN_OR_RETURN(
      quantizer::Statistics statistics,
      UsesGateway(*args.gateway)
          ? CalibrateThere({*args.gateway, *args.model, args.rescue, args.samples}, context)
          : StatisticsHere(args, context));
  if (exists && args.add) {
    QUENCH_RETURN_IF_ERROR(Annotate(before.Merge(statistics), fmt::format("`{}`", args.output)));
    statistics = std::move(before);
  }
  QUENCH_RETURN_IF_ERROR(quantizer::WriteStatistics(statistics, args.output));
  if (args.use_cuda) {
    fmt::print(stderr, "quench: note: there is no code for GPUs yet, the samples ran on the CPU\n");
  }
  WarnOf(statistics);
  if (args.show || args.format == "json") {
    Show(statistics, args.format);
  } else {
    fmt::print("{}\n  samples  {}\n  values   {}\n", args.output, statistics.samples,
               statistics.values.size());
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclareCalibrate(const Options& options) {
  auto args = std::make_shared<CalibrateArgs>();
  AddModelOptions(options, args->model);
  AddPassFlags(options, args->model, passes::PipelineSwitches());
  options.Describe("MODEL", "Model file or IR module; or statistics, to be shown");
  options.Add("--data,-d", args->samples.data, "Samples: a file or a folder", "PATH");
  options.Add("--random", args->samples.random, "Random samples, where there are no real ones", "N")
      .AtLeast(1);
  AddImageFlag(options, args->samples.images).Needs({"--data"});
  options.Add("--seed", args->samples.seed, "Of random samples", "N (default 1)")
      .Needs({"--random"});
  AddSampleSizes(options, args->samples).Needs({"--random"});
  options.Add("--output,-o", args->output, "Where statistics go",
              "FILE (default ./calibration.stats)");
  AddRescueFlags(options, args->rescue);
  options.Flag("--add", args->add, "Add to the statistics that FILE has");
  options.Flag("--force,-f", args->force, "Replace FILE").Excludes({"--add"});
  options
      .Add("--workers", args->samples.workers,
           "Samples that run side by side; statistics do not depend on it",
           "N (default: one for each CPU)")
      .Range(1, 1024);
  options.Flag("--use-cuda", args->use_cuda, "Run samples on a GPU where that is possible");
  options.Flag("--show", args->show, "Print the statistics");
  options.Add("--format", args->format, "Format of what is printed", "table|json")
      .OneOf({"table", "json"});
  AddWorkOptions(options, args->gateway);
  options.Examples(kCalibrateExamples);
  args->given = [options] { return options.Given(); };
  return [args](const StepContext& context) { return RunCalibrate(*args, context); };
}

}  // namespace quench::cli
