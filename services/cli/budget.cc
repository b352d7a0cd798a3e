#include "services/cli/budget.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runner/inputs.h"
#include "common/runtime/quench_rt.h"
#include "services/cli/labels.h"
#include "services/codegen/codegen.h"
#include "services/quantizer/quantize.h"
#include "services/quantizer/switches.h"

namespace quench::cli {
namespace {

absl::StatusOr<double> ParseNumber(std::string_view text, const char* option, const char* example) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return InvalidArgument("{}: `{}` is not a number (example: {})", option, text, example);
}

}  // namespace

absl::StatusOr<quantizer::Budget> BudgetOf(const BudgetFlags& flags) {
  quantizer::Budget budget;
  if (std::string_view text = flags.max_drop; !text.empty()) {
    const bool percent = text.ends_with('%');
    if (percent) text.remove_suffix(1);
    QUENCH_ASSIGN_OR_RETURN(const double drop, ParseNumber(text, "--max-drop", "0.5%"));
    if (!percent && drop > 0) {
      return InvalidArgument(
          "--max-drop `{}` needs a percent sign: write {}% for {} percentage points", text, text,
          text);
    }
    budget.max_drop = drop / 100;
  }
  if (!flags.min_sqnr.empty()) {
    QUENCH_ASSIGN_OR_RETURN(budget.min_sqnr_db, ParseNumber(flags.min_sqnr, "--min-sqnr", "30"));
  }
  // A model that is only measured may lose any accuracy.
  if (!budget.max_drop && !budget.min_sqnr_db)
    budget.min_sqnr_db = std::numeric_limits<double>::lowest();
  return budget;
}

void AddBudgetFlags(const Options& all, const std::shared_ptr<BudgetFlags>& flags) {
  const Options options = all.In("Accuracy");
  options.Add(
      "--max-drop", flags->max_drop,
      "Accuracy budget: keep the most sensitive layers in float until top-1 drops by at most P "
      "percentage points (against --labels, or else against the float model's answers)",
      "P%");
  options.Add("--min-sqnr", flags->min_sqnr,
              "Accuracy budget: keep the most sensitive layers in float until the SQNR of every "
              "output is at least DB decibels",
              "DB");
  options.Add("--evaluation-data", flags->data,
              "Samples on which accuracy is measured, for a budget or for the reported SQNR (as "
              "for `quench calibrate`). An SQNR of 0 dB or less is an error",
              "PATH");
  const Options measured = options.Under({"--max-drop", "--min-sqnr"});
  measured.In("Input").Add("--labels", flags->labels,
                           "Correct class for each row of the first output: .npy, one number per "
                           "line, or a folder with a folder of images per class (sorted by name)",
                           "FILE");
  measured.Rare()
      .Add("--sensitivity-samples", flags->options.sensitivity_samples,
           "Number of samples used to measure the sensitivity of each layer", "N (default 32)")
      .AtLeast(1);
}

bool HasBudget(const BudgetFlags& flags) {
  return !flags.max_drop.empty() || !flags.min_sqnr.empty() || !flags.data.empty();
}

absl::Status CheckBudget(const BudgetFlags& flags, const std::string& data) {
  if (HasBudget(flags) && data.empty()) {
    return InvalidArgument(
        "--max-drop and --min-sqnr need samples to measure accuracy on: --evaluation-data PATH");
  }
  if (!HasBudget(flags)) return absl::OkStatus();
  StatusCollector problems;  // all there is to see before hours of work
  quantizer::SelectOptions options = flags.options;
  const absl::StatusOr<quantizer::Budget> budget = BudgetOf(flags);
  problems.Add(budget.status());
  if (budget.ok()) {
    options.budget = *budget;
    problems.Add(quantizer::CheckOptions(options));
  }
  problems.Add(ReadLabels(flags.labels).status());
  return problems.Finish();
}

absl::StatusOr<quantizer::Selection> SelectHere(const Graph& graph,
                                                const quantizer::Statistics* statistics,
                                                const quantizer::QuantizeOptions& how,
                                                const BudgetFlags& flags,
                                                const StepContext& context) {
  quantizer::SelectOptions options = flags.options;
  QUENCH_ASSIGN_OR_RETURN(options.budget, BudgetOf(flags));
  QUENCH_ASSIGN_OR_RETURN(options.labels, ReadLabels(flags.labels));
  options.threads = static_cast<int>(quench_rt_cpus());
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Samples> samples,
                          OpenSamples(flags.data, InputsOf(graph), flags.format, context));
  return SelectOn(graph, statistics, how, options, *samples, context);
}

absl::StatusOr<quantizer::Selection> SelectOn(const Graph& graph,
                                              const quantizer::Statistics* statistics,
                                              const quantizer::QuantizeOptions& how,
                                              const quantizer::SelectOptions& options,
                                              const Samples& samples, const StepContext& context,
                                              const std::filesystem::path& parent) {
  quantizer::QuantizeOptions switched = how;
  switched.switches = true;
  QUENCH_ASSIGN_OR_RETURN(const quantizer::QuantizedModule trial,
                          quantizer::Quantize(graph, statistics, switched, context));
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create(parent));
  const std::filesystem::path library = folder.path() / "trials.so";
  codegen::CompileOptions build;
  build.passes = how.passes;
  QUENCH_RETURN_IF_ERROR(
      codegen::Compile(trial.graph, build, library, folder.path() / "trials.h", context).status());
  return quantizer::Select(trial.graph, library, samples, options, context);
}

nlohmann::json CostToJson(const quantizer::Cost& cost) {
  nlohmann::json json;
  json["sqnr_db"] = std::isfinite(cost.sqnr_db) ? nlohmann::json(cost.sqnr_db)
                    : cost.sqnr_db > 0          ? nlohmann::json("inf")
                                                : nlohmann::json("-inf");
  if (cost.drop) json["drop"] = *cost.drop;
  return json;
}

nlohmann::json SelectionToJson(const quantizer::Selection& selection) {
  nlohmann::json layers = nlohmann::json::array(), trials = nlohmann::json::array();
  for (const quantizer::LayerSensitivity& layer : selection.layers) {
    layers.push_back(
        {{"node", layer.node}, {"alone", CostToJson(layer.alone)}, {"kept_in_float", layer.kept}});
  }
  for (const quantizer::Trial& trial : selection.trials)
    trials.push_back({{"kept_in_float", trial.kept}, {"cost", CostToJson(trial.cost)}});
  return {{"samples", selection.samples},
          {"sensitivity_samples", selection.sensitivity_samples},
          {"layers", layers},
          {"trials", trials},
          {"cost", CostToJson(selection.cost)}};
}

}  // namespace quench::cli
