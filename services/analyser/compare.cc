#include "services/analyser/compare.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/status.h"
#include "common/runner/fidelity.h"
#include "common/runner/runner.h"
#include "services/analyser/json_number.h"

namespace quench::analyser {
namespace {

// Name of a value's quantized form, as the quantizer gives it.
constexpr std::string_view kQuantizedSuffix = ".q";
constexpr int64_t kTop = 5;

ValueComparison ComparisonOf(const std::string& name, const NoiseSums& sums) {
  ValueComparison result;
  result.value = name;
  result.elements = sums.elements;
  result.sqnr_db = sums.SqnrDb();
  result.cosine = sums.Cosine();
  result.max_error = sums.max_error;
  result.mean_error = sums.elements == 0 ? 0 : sums.difference / static_cast<double>(sums.elements);
  result.error = sums.max_error == 0 ? 0 : sums.max_error / std::max(sums.max_a, 1e-30);
  return result;
}

struct Saturated {
  int64_t elements = 0, at_ends = 0;

  // `real` is what was quantized: zeros are exact at whatever end they lie.
  void Add(const Tensor& tensor, const Tensor& real) {
    const int64_t least = tensor.dtype() == DataType::kI8 ? -128 : 0;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const int64_t value = tensor.IntAt(i);
      const bool at_end = value == least || value == least + 255;
      at_ends += at_end && real.FloatAt(i) != 0 ? 1 : 0;
    }
    elements += tensor.size();
  }
};

bool IsComparable(DataType dtype) { return IsFloat(dtype) || IsInteger(dtype); }

absl::Status CheckInterfaces(const Artifact& reference, const Artifact& other) {
  StatusCollector problems;
  const auto compare = [&](const char* what, const std::vector<ArtifactTensor>& a,
                           const std::vector<ArtifactTensor>& b) {
    if (a.size() != b.size()) {
      problems.Add(
          InvalidArgument("the reference has {} {}s, the other {}", a.size(), what, b.size()));
      return;
    }
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].name == b[i].name && a[i].dtype == b[i].dtype &&
          a[i].dims.size() == b[i].dims.size())
        continue;
      problems.Add(
          InvalidArgument("{} {} is `{}` ({}, rank {}) in the reference and `{}` ({}, rank "
                          "{}) in the other",
                          what, i, a[i].name, DataTypeName(a[i].dtype), a[i].dims.size(), b[i].name,
                          DataTypeName(b[i].dtype), b[i].dims.size()));
    }
  };
  compare("input", reference.inputs(), other.inputs());
  compare("output", reference.outputs(), other.outputs());
  return problems.Finish();
}

class Comparison {
 public:
  Comparison(Artifact& other, const CompareOptions& options) : other_(other), options_(options) {}

  absl::Status Run(Artifact& reference, const std::vector<Tensor>& inputs,
                   const StepContext& context) {
    std::map<std::string, Tensor> expected;
    const auto keep = [&](const std::string& name, const Tensor& tensor) {
      if (IsComparable(tensor.dtype())) expected[name] = tensor;
    };
    QUENCH_ASSIGN_OR_RETURN(
        const std::vector<Tensor> a,
        reference.Run(inputs, context, options_.layers ? keep : Artifact::TapSink()));
    return RunOther(a, expected, inputs, context);
  }

  // `expected`: values inside, by name.
  absl::Status RunOther(const std::vector<Tensor>& a, const std::map<std::string, Tensor>& expected,
                        const std::vector<Tensor>& inputs, const StepContext& context) {
    for (const auto& [name, tensor] : expected) reference_only_.insert(name);
    std::map<std::string, Tensor> reals;  // the other's own
    for (size_t i = 0; i < inputs.size(); ++i) reals[other_.inputs()[i].name] = inputs[i];
    const auto compare = [&](const std::string& name, const Tensor& tensor) {
      if (name.ends_with(kQuantizedSuffix) &&
          (tensor.dtype() == DataType::kI8 || tensor.dtype() == DataType::kU8)) {
        const std::string value = name.substr(0, name.size() - kQuantizedSuffix.size());
        const auto real = reals.find(value);
        if (real != reals.end() && real->second.size() == tensor.size())
          saturated_[value].Add(tensor, real->second);
      }
      if (IsFloat(tensor.dtype())) reals[name] = tensor;
      const auto found = expected.find(name);
      if (found == expected.end() || found->second.dtype() != tensor.dtype() ||
          found->second.dims() != tensor.dims()) {
        if (IsComparable(tensor.dtype()) && seen_.insert(name).second) other_only_.push_back(name);
        return;
      }
      seen_.insert(name);
      const auto [sums, fresh] = layers_.try_emplace(name);
      if (fresh) order_.push_back(name);
      sums->second.Add(found->second, tensor);
    };
    QUENCH_ASSIGN_OR_RETURN(
        const std::vector<Tensor> b,
        other_.Run(inputs, context, options_.layers ? compare : Artifact::TapSink()));
    outputs_.resize(a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const std::string& name = other_.outputs()[i].name;
      if (a[i].dims() != b[i].dims()) {
        return InvalidArgument("output `{}` is [{}] in the reference and [{}] in the other", name,
                               fmt::join(a[i].dims(), ", "), fmt::join(b[i].dims(), ", "));
      }
      if (IsComparable(a[i].dtype())) outputs_[i].Add(a[i], b[i]);
    }
    if (!a.empty()) Classify(a[0], b[0]);
    return absl::OkStatus();
  }

  absl::StatusOr<CompareReport> Finish(int64_t samples) const {
    CompareReport report;
    report.samples = samples;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      report.outputs.push_back(ComparisonOf(other_.outputs()[i].name, outputs_[i]));
    }
    for (const std::string& name : order_) {
      ValueComparison& layer = report.layers.emplace_back(ComparisonOf(name, layers_.at(name)));
      const auto found = saturated_.find(name);
      if (found != saturated_.end() && found->second.elements > 0) {
        layer.saturation = static_cast<double>(found->second.at_ends) /
                           static_cast<double>(found->second.elements);
      }
    }
    report.tolerance = options_.tolerance.value_or(saturated_.empty() ? 1e-3 : 0.1);
    for (const std::vector<ValueComparison>* list : {&report.layers, &report.outputs}) {
      for (const ValueComparison& value : *list) {
        if (report.first_divergence.empty() && !(value.error <= report.tolerance))
          report.first_divergence = value.value;
      }
    }
    for (const std::string& name : reference_only_) {
      if (!layers_.contains(name)) report.reference_only.push_back(name);
    }
    report.other_only = other_only_;
    if (!options_.labels.empty() && static_cast<int64_t>(options_.labels.size()) != rows_) {
      return InvalidArgument("{} labels for {} rows of output `{}`", options_.labels.size(), rows_,
                             other_.outputs().empty() ? "" : other_.outputs()[0].name);
    }
    if (rows_ == 0) return report;
    const auto part = [&](int64_t count) {
      return static_cast<double>(count) / static_cast<double>(rows_);
    };
    Accuracy& accuracy = report.accuracy.emplace();
    accuracy.rows = rows_;
    accuracy.agreement = part(agreeing_);
    if (options_.labels.empty()) return report;
    accuracy.reference_top1 = part(hits_[0][0]);
    accuracy.reference_top5 = part(hits_[0][1]);
    accuracy.other_top1 = part(hits_[1][0]);
    accuracy.other_top5 = part(hits_[1][1]);
    return report;
  }

 private:
  void Classify(const Tensor& a, const Tensor& b) {
    if (!HasClasses(a)) return;
    const std::vector<std::vector<int64_t>> best[2] = {TopClasses(a, kTop), TopClasses(b, kTop)};
    for (size_t row = 0; row < best[0].size(); ++row, ++rows_) {
      const bool classified = !best[0][row].empty() && !best[1][row].empty();
      agreeing_ += classified && best[0][row][0] == best[1][row][0] ? 1 : 0;
      if (rows_ >= static_cast<int64_t>(options_.labels.size())) continue;
      const int64_t label = options_.labels[static_cast<size_t>(rows_)];
      for (const size_t side : {0, 1}) {
        const std::vector<int64_t>& classes = best[side][row];
        hits_[side][0] += !classes.empty() && classes[0] == label ? 1 : 0;
        hits_[side][1] += std::find(classes.begin(), classes.end(), label) != classes.end() ? 1 : 0;
      }
    }
  }

  Artifact& other_;
  const CompareOptions& options_;
  std::vector<NoiseSums> outputs_;
  std::map<std::string, NoiseSums> layers_;
  std::vector<std::string> order_;  // of layers
  std::set<std::string> reference_only_, seen_;
  std::vector<std::string> other_only_;
  std::map<std::string, Saturated> saturated_;
  int64_t rows_ = 0, agreeing_ = 0;
  int64_t hits_[2][2] = {};  // of the reference and the other: first, among the first five
};

nlohmann::json ValuesToJson(const std::vector<ValueComparison>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const ValueComparison& value : values) {
    nlohmann::json entry = {{"value", value.value},
                            {"elements", value.elements},
                            {"sqnr_db", JsonNumber(value.sqnr_db)},
                            {"cosine", JsonNumber(value.cosine)},
                            {"max_error", JsonNumber(value.max_error)},
                            {"mean_error", JsonNumber(value.mean_error)},
                            {"error", JsonNumber(value.error)}};
    if (value.saturation) entry["saturation"] = *value.saturation;
    list.push_back(std::move(entry));
  }
  return list;
}

void PrintValues(const std::string& title, const std::vector<ValueComparison>& values,
                 std::string& text) {
  if (values.empty()) return;
  text += fmt::format("{:<40} {:>8} {:>9} {:>11} {:>11} {:>9} {:>10}\n", title, "SQNR dB", "cosine",
                      "max error", "mean error", "relative", "saturated");
  for (const ValueComparison& value : values) {
    text +=
        fmt::format("{:<40} {:>8.2f} {:>9.6f} {:>11.4g} {:>11.4g} {:>9.2g} {:>10}\n", value.value,
                    value.sqnr_db, value.cosine, value.max_error, value.mean_error, value.error,
                    value.saturation ? fmt::format("{:.3f} %", 100 * *value.saturation) : "");
  }
}

absl::StatusOr<CompareReport> OverSamples(
    const Samples& samples, const Comparison& comparison,
    const std::function<absl::Status(int64_t, const std::vector<Tensor>&)>& run,
    const StepContext& context) {
  if (samples.count() < 1) return InvalidArgument("no samples to compare on");
  for (int64_t i = 0; i < samples.count(); ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    context.Report({"compare", "", i, samples.count()});
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, samples.Read(i));
    QUENCH_RETURN_IF_ERROR(Annotate(run(i, inputs), fmt::format("sample {}", samples.NameOf(i))));
  }
  context.Report({"compare", "", samples.count(), samples.count()});
  return comparison.Finish(samples.count());
}

// Names, the first ten of them.
void PrintNames(const char* title, const std::vector<std::string>& names, std::string& text) {
  constexpr size_t kShown = 10;
  if (names.empty()) return;
  const size_t shown = std::min(names.size(), kShown);
  text += fmt::format(
      "{}  {}: {}{}\n", title, names.size(),
      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < names.size() ? ", ..." : "");
}

}  // namespace

absl::StatusOr<CompareReport> Compare(const std::filesystem::path& reference,
                                      const std::filesystem::path& other, const Samples& samples,
                                      const CompareOptions& options, const StepContext& context) {
  const OpenOptions how(options.threads, options.device);
  QUENCH_ASSIGN_OR_RETURN(const auto b, Artifact::Open(other, how));
  absl::StatusOr<std::unique_ptr<Artifact>> a = Artifact::Open(reference, how);
  if (!a.ok() && !options.device.empty()) a = Artifact::Open(reference, {options.threads, "cpu"});
  QUENCH_RETURN_IF_ERROR(a.status());
  QUENCH_RETURN_IF_ERROR(CheckInterfaces(**a, *b));
  Comparison comparison(*b, options);
  return OverSamples(
      samples, comparison,
      [&](int64_t, const std::vector<Tensor>& inputs) {
        return comparison.Run(**a, inputs, context);
      },
      context);
}

absl::StatusOr<CompareReport> CompareWithFiles(const Samples& expected,
                                               const std::filesystem::path& other,
                                               const Samples& samples,
                                               const CompareOptions& options,
                                               const StepContext& context) {
  if (expected.count() != samples.count()) {
    return InvalidArgument("there are outputs of {} samples, and inputs of {}", expected.count(),
                           samples.count());
  }
  QUENCH_ASSIGN_OR_RETURN(const auto artifact,
                          Artifact::Open(other, {options.threads, options.device}));
  Comparison comparison(*artifact, options);
  return OverSamples(
      samples, comparison,
      [&](int64_t i, const std::vector<Tensor>& inputs) -> absl::Status {
        QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, expected.Read(i));
        return comparison.RunOther(outputs, {}, inputs, context);
      },
      context);
}

void KeepWorst(int64_t count, CompareReport& report) {
  std::vector<ValueComparison>& layers = report.layers;
  const auto rank = [](const ValueComparison& layer) {
    return std::isnan(layer.error) ? HUGE_VAL : layer.error;
  };
  std::stable_sort(layers.begin(), layers.end(),
                   [&](const auto& a, const auto& b) { return rank(a) > rank(b); });
  if (count >= static_cast<int64_t>(layers.size())) return;
  report.all_layers = static_cast<int64_t>(layers.size());
  layers.resize(static_cast<size_t>(count));
}

std::string ToTable(const CompareReport& report) {
  std::string text;
  PrintValues(report.all_layers == 0 ? "layer"
                                     : fmt::format("layer (the worst {} of {})",
                                                   report.layers.size(), report.all_layers),
              report.layers, text);
  PrintValues("output", report.outputs, text);
  text += fmt::format("samples    {}\n", report.samples);
  if (!report.first_divergence.empty())
    text += fmt::format("diverges   first at {}: a relative error above {:g}\n",
                        report.first_divergence, report.tolerance);
  PrintNames("reference only", report.reference_only, text);
  PrintNames("other only    ", report.other_only, text);
  if (!report.accuracy) return text;
  const Accuracy& accuracy = *report.accuracy;
  text += fmt::format("agreement  {:.2f} % of {} rows\n", 100 * accuracy.agreement, accuracy.rows);
  if (!accuracy.reference_top1) return text;
  const auto line = [&](const char* name, double a, double b) {
    text += fmt::format("{:<9}  {:.2f} % -> {:.2f} %  ({:+.2f} points)\n", name, 100 * a, 100 * b,
                        100 * (b - a));
  };
  line("top-1", *accuracy.reference_top1, *accuracy.other_top1);
  line("top-5", *accuracy.reference_top5, *accuracy.other_top5);
  return text;
}

std::string ToJson(const CompareReport& report) {
  nlohmann::json json = {{"samples", report.samples},
                         {"outputs", ValuesToJson(report.outputs)},
                         {"layers", ValuesToJson(report.layers)},
                         {"reference_only", report.reference_only},
                         {"other_only", report.other_only},
                         {"tolerance", report.tolerance},
                         {"first_divergence", nullptr}};
  if (report.all_layers > 0) json["all_layers"] = report.all_layers;
  if (!report.first_divergence.empty()) json["first_divergence"] = report.first_divergence;
  if (report.accuracy) {
    const Accuracy& accuracy = *report.accuracy;
    json["accuracy"] = {{"rows", accuracy.rows}, {"agreement", accuracy.agreement}};
    const auto add = [&](const char* name, const std::optional<double>& value) {
      if (value) json["accuracy"][name] = *value;
    };
    add("reference_top1", accuracy.reference_top1);
    add("other_top1", accuracy.other_top1);
    add("reference_top5", accuracy.reference_top5);
    add("other_top5", accuracy.other_top5);
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace quench::analyser
