#include "services/cli/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runner/inputs.h"
#include "common/runtime/quench_rt.h"
#include "services/cli/labels.h"
#include "services/cli/precision_check.h"
#include "services/cli/precision_refine.h"
#include "services/cli/precision_sensitivity.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {
namespace {

constexpr char kWho[] = "--precision fastest";
constexpr double kDefaultFloor = 20;  // dB
constexpr double kKernelSeconds = 4, kRefineSeconds = 1.5, kChoiceSeconds = 3;
constexpr int kMostRefinements = 4;
constexpr double kFaster = 0.99;  // of the time: less is noise

bool AnyHas(const Assignment& types, Precision type) {
  return std::find(types.layers.begin(), types.layers.end(), type) != types.layers.end();
}

SampleOptions EvaluationOf(const QuantizeJob& job) {
  SampleOptions samples = job.samples;
  if (!job.how.budget->data.empty()) {
    samples.data = job.how.budget->data;
    samples.random = 0;
  }
  return samples;
}

}  // namespace

PrecisionSearch::PrecisionSearch(const PrecisionJob& job, const StepContext& context)
    : job_(job), context_(context), options_(job.codegen) {
  options_.opt_level = std::min<int>(options_.opt_level, 3);
  options_.check = codegen::CheckMode::kNo;
  options_.emit = codegen::Emit::kSharedLibrary;
  options_.check_source = nullptr;
  options_.on_mismatch = nullptr;
}

PrecisionSearch::~PrecisionSearch() = default;

absl::StatusOr<MixedModel> PrecisionSearch::Run() {
  QUENCH_RETURN_IF_ERROR(codegen::CheckTrialTarget(options_, kWho));
  QUENCH_RETURN_IF_ERROR(Prepare());
  QUENCH_RETURN_IF_ERROR(BuildUniform());
  std::vector<Build*> all;
  for (const auto& [type, build] : uniform_) all.push_back(build.get());
  QUENCH_ASSIGN_OR_RETURN(std::vector<std::vector<TimedKernel>> kernels,
                          TimeKernels(all, kKernelSeconds));
  TimedBuilds timed;
  size_t next = 0;
  for (const auto& [type, build] : uniform_) timed[type] = std::move(kernels[next++]);
  layers_ = FindLayers(module_, timed);
  const auto integers = uniform_.find(Precision::kInt8);
  ForbidTypes(module_, source_->passes,
              integers == uniform_.end() ? nullptr : &integers->second->model.quantization->report,
              layers_);
  usual_ = FastestBuild(false);
  floats_ = FastestBuild(true);
  std::vector<Precision> among;
  for (const auto& [type, build] : uniform_) among.push_back(type);
  types_ = FastestTypes(layers_, among, usual_, floats_);
  if (costs_ == nullptr) {
    if (!IsUniform()) {
      QUENCH_ASSIGN_OR_RETURN(mixed_, BuildMixed(types_));
    }
  } else {
    QUENCH_RETURN_IF_ERROR(MeasureUniform());
    QUENCH_RETURN_IF_ERROR(ChooseBudgeted());
  }
  return Result();
}

absl::Status PrecisionSearch::Prepare() {
  const QuantizeJob& job = job_.quantize;
  QUENCH_ASSIGN_OR_RETURN(folder_, TempDir::Create(job_.folder));
  ModelOptions model = job_.model;
  model.narrows_later = job.calibration.empty();  // a file of statistics is of the plain module
  QUENCH_ASSIGN_OR_RETURN(module_, PrepareForQuantization(model, job.how.rescue, context_));
  if (module_.stage == Stage::kQuantized) {
    return absl::FailedPreconditionError(
        "the module is quantized already: --precision fastest takes one in float");
  }
  source_.emplace(MixedSource{module_, nullptr, OptionsOf(job.how), PassOptionsOf(job_.model)});
  source_->how.per_channel = true;  // as fast, and more accurate
  source_->how.passes = source_->passes;
  if (HasCalibration(job)) {
    TapBuild taps(module_);
    if (job.calibration.empty()) {
      QUENCH_ASSIGN_OR_RETURN(statistics_, CalibrateHere(taps, job.samples, context_));
    } else {
      QUENCH_ASSIGN_OR_RETURN(statistics_, quantizer::ReadStatistics(job.calibration));
    }
    WarnOf(*statistics_);
    source_->statistics = &*statistics_;
    source_->passes.magnitudes = MagnitudesIn(*statistics_);
    if (IsAdaptive(*job.how.rounding)) {
      QUENCH_ASSIGN_OR_RETURN(quantizer::Rounding rounding,
                              AdaptHere(taps, source_->how, *job.how.rounding, context_));
      source_->how.rounding = std::make_shared<const quantizer::Rounding>(std::move(rounding));
    }
  }
  if (!HasEvaluation(job)) return absl::OkStatus();
  const BudgetFlags& flags = *job.how.budget;
  select_ = flags.options;
  select_.threads = static_cast<int>(quench_rt_cpus());
  QUENCH_ASSIGN_OR_RETURN(select_.budget, BudgetOf(flags));
  QUENCH_ASSIGN_OR_RETURN(select_.labels, ReadLabels(flags.labels));
  report_.default_budget = flags.max_drop.empty() && flags.min_sqnr.empty();
  if (report_.default_budget) select_.budget.min_sqnr_db = kDefaultFloor;
  report_.budget = select_.budget;
  QUENCH_ASSIGN_OR_RETURN(samples_,
                          OpenSamplesOf(EvaluationOf(job), module_, InputsOf(module_), context_));
  report_.samples = samples_->count();
  return absl::OkStatus();
}

absl::Status PrecisionSearch::BuildUniform() {
  for (const Precision type : kPrecisions) {
    if (type == Precision::kInt8 && !statistics_) continue;
    QUENCH_ASSIGN_OR_RETURN(MixedModel model, UniformModel(*source_, type, context_));
    if (model.quantization) {
      const auto& layers = model.quantization->report.layers;
      const bool any = std::any_of(layers.begin(), layers.end(),
                                   [](const auto& layer) { return layer.quantized; });
      if (!any) continue;
      report_.integers = true;
    }
    QUENCH_ASSIGN_OR_RETURN(uniform_[type],
                            MakeBuild(std::move(model), std::string(PrecisionName(type))));
  }
  Artifact& reference = *uniform_[Precision::kF32]->trial.artifact;
  QUENCH_ASSIGN_OR_RETURN(inputs_, codegen::TypicalInputs(module_, reference));
  if (samples_ == nullptr) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(quantizer::CheckOutputs(reference.outputs(), select_.budget));
  costs_ = std::make_unique<Costs>(reference, *samples_, select_.budget, select_.labels);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PrecisionSearch::Build>> PrecisionSearch::MakeBuild(
    MixedModel model, const std::string& name) {
  context_.Report({"precision", "build " + name, builds_, 0});
  auto build = std::make_unique<Build>();
  build->model = std::move(model);
  codegen::CompileOptions options = options_;
  options.passes = build->model.passes;
  QUENCH_ASSIGN_OR_RETURN(
      build->trial, codegen::BuildTrial(build->model.graph, options, folder_->path(),
                                        fmt::format("{}{}", name, builds_++), kWho, context_));
  return build;
}

absl::StatusOr<std::unique_ptr<PrecisionSearch::Build>> PrecisionSearch::BuildMixed(
    const Assignment& types) {
  QUENCH_ASSIGN_OR_RETURN(MixedModel model, MixModel(*source_, layers_, types, context_));
  QUENCH_ASSIGN_OR_RETURN(std::unique_ptr<Build> build, MakeBuild(std::move(model), "mixed"));
  build->types = types;
  if (costs_ == nullptr) return build;
  QUENCH_ASSIGN_OR_RETURN(build->cost, costs_->Of(*build->trial.artifact, "mixed", context_));
  return build;
}

absl::StatusOr<std::vector<std::vector<TimedKernel>>> PrecisionSearch::TimeKernels(
    const std::vector<Build*>& builds, double seconds) {
  std::vector<std::vector<std::vector<double>>> times(builds.size());  // by build and kernel
  const auto run = [&](size_t i, bool counts) {
    QUENCH_ASSIGN_OR_RETURN(const std::vector<NodeTiming> nodes,
                            builds[i]->trial.artifact->Profile(inputs_));
    times[i].resize(nodes.size());
    for (size_t k = 0; counts && k < nodes.size(); ++k) times[i][k].push_back(nodes[k].seconds);
    return absl::OkStatus();
  };
  QUENCH_RETURN_IF_ERROR(
      codegen::RunInTurn(builds.size(), seconds, "kernels", run, context_).status());
  std::vector<std::vector<TimedKernel>> timed(builds.size());
  for (size_t i = 0; i < builds.size(); ++i) {
    const std::vector<codegen::KernelReport>& kernels = builds[i]->trial.report.kernels;
    builds[i]->milliseconds = 0;
    for (size_t k = 0; k < std::min(kernels.size(), times[i].size()); ++k) {
      timed[i].push_back({kernels[k].node, 1e6 * codegen::LowerQuartile(times[i][k])});
      builds[i]->milliseconds += 1e-3 * timed[i].back().microseconds;
    }
  }
  return timed;
}

absl::Status PrecisionSearch::MeasureUniform() {
  for (const auto& [type, build] : uniform_) {
    if (type == Precision::kF32) continue;
    QUENCH_ASSIGN_OR_RETURN(build->cost, costs_->Of(*build->trial.artifact,
                                                    std::string(PrecisionName(type)), context_));
  }
  return absl::OkStatus();
}

Precision PrecisionSearch::FastestBuild(bool floats_alone) const {
  Precision fastest = Precision::kF32;
  double least = uniform_.at(fastest)->milliseconds;
  for (const auto& [type, build] : uniform_) {
    if (floats_alone && type == Precision::kInt8) continue;
    if (build->milliseconds < least) {
      least = build->milliseconds;
      fastest = type;
    }
  }
  return fastest;
}

// Whether a build of the chosen types is the fastest build once more.
bool PrecisionSearch::IsUniform() const { return types_ == TypesOf(usual_); }

// Noise as large as the outputs keeps no budget, however large that is.
bool PrecisionSearch::Keeps(const Build& build) const {
  return !build.cost || (build.cost->sqnr_db > 0 && quantizer::Holds(select_.budget, *build.cost));
}

absl::Status PrecisionSearch::ChooseBudgeted() {
  const auto integers = uniform_.find(Precision::kInt8);
  if (AnyHas(types_, Precision::kInt8) && !Keeps(*integers->second))
    QUENCH_RETURN_IF_ERROR(SelectIntegers());
  if (IsUniform() && Keeps(*uniform_[usual_])) return absl::OkStatus();
  QUENCH_ASSIGN_OR_RETURN(mixed_, BuildMixed(types_));
  return Keeps(*mixed_) ? absl::OkStatus() : Descend();
}

// Layers of `types` that are integers, tried on a build with switches.
absl::StatusOr<quantizer::Selection> PrecisionSearch::Selected(const Assignment& types,
                                                               bool always) const {
  quantizer::QuantizeOptions how = source_->how;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (types.layers[i] == Precision::kInt8) continue;
    for (const std::string& product : layers_[i].products) how.kept[product] = "of another type";
  }
  quantizer::SelectOptions options = select_;
  options.may_keep_all = true;
  options.always_sensitivity = always;
  return SelectOn(module_, &*statistics_, how, options, *samples_, context_, job_.folder);
}

absl::Status PrecisionSearch::SelectIntegers() {
  QUENCH_ASSIGN_OR_RETURN(const quantizer::Selection selection, Selected(types_, false));
  integers_ = SensitivityOfIntegers(layers_, selection);
  std::map<std::string, double> kept;
  for (const quantizer::LayerSensitivity& layer : selection.layers) {
    if (layer.kept) kept[layer.node] = layer.alone.sqnr_db;
  }
  constexpr Precision kFloats[] = {Precision::kF32, Precision::kF16, Precision::kBF16};
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (const std::string& product : layers_[i].products) {
      const auto found = kept.find(product);
      if (found == kept.end() || types_.layers[i] != Precision::kInt8) continue;
      types_.layers[i] = FastestFor(layers_[i], kFloats, floats_);
      types_.reasons[i] =
          fmt::format("kept by the budget from int8: alone in it {:.1f} dB", found->second);
    }
  }
  return absl::OkStatus();
}

// The fewest steps to f32 with which a library keeps the budget.
absl::Status PrecisionSearch::Descend() {
  // Layers that are integers now were then, too.
  if (AnyHas(types_, Precision::kInt8) && integers_.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const quantizer::Selection measured, Selected(types_, true));
    integers_ = SensitivityOfIntegers(layers_, measured);
  }
  QUENCH_ASSIGN_OR_RETURN(
      const Sensitivities halves,
      SensitivityOfHalves({*source_, layers_, types_, floats_, *samples_, select_, job_.folder},
                          context_));
  const std::vector<Demotion> ladder = Ladder(types_, layers_, integers_, halves, floats_);
  size_t low = 0, high = ladder.size();  // all in f32 costs nothing
  mixed_ = nullptr;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    QUENCH_ASSIGN_OR_RETURN(std::unique_ptr<Build> build,
                            BuildMixed(After(types_, ladder, middle)));
    const bool keeps = Keeps(*build);
    if (keeps) mixed_ = std::move(build);
    (keeps ? high : low) = middle;
  }
  types_ = After(types_, ladder, high);
  return absl::OkStatus();
}

Assignment PrecisionSearch::TypesOf(Precision uniform) const {
  Assignment types;
  for (const PrecisionLayer& layer : layers_)
    types.layers.push_back(layer.why_not.contains(uniform) ? Precision::kF32 : uniform);
  types.reasons.resize(layers_.size());
  types.others = uniform == Precision::kInt8 ? Precision::kF32 : uniform;
  return types;
}

// Mixed builds beside `base`, as long as the one before has layers that do not gain.
absl::Status PrecisionSearch::Refine(Build& base, std::vector<std::unique_ptr<Build>>& mixed) {
  const std::vector<std::set<size_t>> neighbours = Neighbours(module_, layers_);
  for (int round = 0; round < kMostRefinements; ++round) {
    QUENCH_ASSIGN_OR_RETURN(const std::vector<std::vector<TimedKernel>> kernels,
                            TimeKernels({&base, mixed.back().get()}, kRefineSeconds));
    const Assignment& before = mixed.back()->types;
    Assignment refined = Refined(before, base.types, neighbours, LayerTimes(layers_, kernels[0]),
                                 LayerTimes(layers_, kernels[1]));
    if (refined == before || refined == base.types) return absl::OkStatus();
    QUENCH_ASSIGN_OR_RETURN(std::unique_ptr<Build> build, BuildMixed(refined));
    if (!Keeps(*build)) return absl::OkStatus();
    mixed.push_back(std::move(build));
  }
  return absl::OkStatus();
}

absl::StatusOr<MixedModel> PrecisionSearch::Result() {
  Precision fastest = Precision::kF32;
  for (const auto& [type, build] : uniform_) {
    const bool keeps = Keeps(*build);
    build->types = TypesOf(type);
    report_.builds.push_back(
        {std::string(PrecisionName(type)), build->milliseconds, build->cost, keeps});
    if (keeps && build->milliseconds < uniform_[fastest]->milliseconds) fastest = type;
  }
  Build* chosen = uniform_[fastest].get();
  report_.chosen = PrecisionName(fastest);
  // Layers that the budget left in the type of the build that keeps it.
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (types_.layers[i] == chosen->types.layers[i]) chosen->types.reasons[i] = types_.reasons[i];
  }
  if (mixed_ != nullptr) {
    std::vector<std::unique_ptr<Build>> mixed;
    mixed.push_back(std::move(mixed_));
    QUENCH_RETURN_IF_ERROR(Refine(*chosen, mixed));
    std::vector<Build*> all = {chosen};
    for (const std::unique_ptr<Build>& each : mixed) all.push_back(each.get());
    QUENCH_RETURN_IF_ERROR(TimeKernels(all, kChoiceSeconds).status());
    for (PrecisionBuild& build : report_.builds) {  // as it ran beside the mixed ones
      if (build.name == report_.chosen) build.milliseconds = chosen->milliseconds;
    }
    const auto best = std::min_element(
        mixed.begin(), mixed.end(),
        [](const auto& a, const auto& b) { return a->milliseconds < b->milliseconds; });
    mixed_ = std::move(*best);
    report_.builds.push_back({"mixed", mixed_->milliseconds, mixed_->cost, true});
    if (mixed_->milliseconds < kFaster * chosen->milliseconds) {
      chosen = mixed_.get();
      report_.chosen = "mixed";
    }
  }
  report_.layers = layers_;
  report_.types = chosen->types;
  report_.written = chosen->cost;
  return std::move(chosen->model);
}

absl::Status PrecisionSearch::MeasureWritten(const std::filesystem::path& library) {
  if (costs_ == nullptr) return absl::OkStatus();
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact, Artifact::Open(library));
  QUENCH_ASSIGN_OR_RETURN(report_.written, costs_->Of(*artifact, "library", context_));
  if (report_.written->sqnr_db > 0 && quantizer::Holds(select_.budget, *report_.written))
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("the library, whose kernels are others than those of the trials, is outside the "
                  "budget: {}; --opt-level 3 has the kernels of the trials",
                  quantizer::CostText(*report_.written)));
}

}  // namespace quench::cli
