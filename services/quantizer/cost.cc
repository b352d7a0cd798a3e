#include "services/quantizer/cost.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/status.h"

namespace quench::quantizer {
namespace {

constexpr int64_t kReferenceBytes = int64_t{256} << 20;  // outputs of the float model that are kept

std::string Percent(double part) { return fmt::format("{:.2f} %", 100 * part); }

}  // namespace

std::string CostText(const Cost& cost) {
  std::string text = std::isfinite(cost.sqnr_db) ? fmt::format("{:.2f} dB", cost.sqnr_db)
                     : cost.sqnr_db > 0          ? "exact"
                                                 : "all noise";
  if (cost.drop) text += ", drop " + Percent(*cost.drop);
  return text;
}

bool Holds(const Budget& budget, const Cost& cost) {
  return (!budget.max_drop || (cost.drop && *cost.drop <= *budget.max_drop)) &&
         (!budget.min_sqnr_db || cost.sqnr_db >= *budget.min_sqnr_db);
}

absl::Status CheckOutputs(const std::vector<ArtifactTensor>& outputs, const Budget& budget) {
  StatusCollector problems;
  const bool classes = !outputs.empty() && !outputs[0].dims.empty() &&
                       outputs[0].dims.back().max >= 2 &&
                       (IsFloat(outputs[0].dtype) || IsInteger(outputs[0].dtype));
  if (budget.max_drop && !classes) {
    problems.Add(absl::FailedPreconditionError(
        "the first output has no axis of classes to lose accuracy in; give a floor of SQNR"));
  }
  const bool real = std::any_of(outputs.begin(), outputs.end(),
                                [](const ArtifactTensor& output) { return IsFloat(output.dtype); });
  if (budget.min_sqnr_db && !real) {
    problems.Add(absl::FailedPreconditionError(
        "no output is a float, so that none has quantization noise; give a largest drop"));
  }
  return problems.Finish();
}

absl::Status Score::Add(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  outputs_.resize(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].dims() != b[i].dims()) {
      return InvalidArgument(
          "output {} is [{}] in f32 and [{}] otherwise: its size depends on values, so that "
          "nothing can be compared",
          i, fmt::join(a[i].dims(), ", "), fmt::join(b[i].dims(), ", "));
    }
    if (IsFloat(a[i].dtype())) outputs_[i].Add(a[i], b[i]);
  }
  if (a.empty() || !HasClasses(a[0])) return absl::OkStatus();
  const auto best = TopClasses(a[0], 1), other = TopClasses(b[0], 1);
  for (size_t row = 0; row < best.size(); ++row, ++rows_) {
    const bool labelled = rows_ < static_cast<int64_t>(labels_.size());
    // Without labels the float module is right.
    const std::vector<int64_t> label =
        labelled ? std::vector{labels_[static_cast<size_t>(rows_)]} : best[row];
    lost_ += (best[row] == label ? 1 : 0) - (other[row] == label ? 1 : 0);
  }
  if (labels_.empty() || rows_ <= static_cast<int64_t>(labels_.size())) return absl::OkStatus();
  return InvalidArgument("{} labels, and the first output has more rows", labels_.size());
}

Cost Score::cost() const {
  Cost cost{std::numeric_limits<double>::infinity(), std::nullopt};
  for (const NoiseSums& sums : outputs_) {
    // NaN is worse than anything.
    const double db = sums.SqnrDb();
    cost.sqnr_db =
        std::isnan(db) ? -std::numeric_limits<double>::infinity() : std::min(cost.sqnr_db, db);
  }
  if (rows_ > 0) cost.drop = static_cast<double>(lost_) / static_cast<double>(rows_);
  return cost;
}

absl::Status Score::Check(const Budget& budget) const {
  if (budget.max_drop && rows_ == 0) {
    return absl::FailedPreconditionError(
        "the first output has no rows to lose accuracy in; give a floor of SQNR");
  }
  if (!labels_.empty() && rows_ != static_cast<int64_t>(labels_.size())) {
    return InvalidArgument("{} labels for {} rows of the first output", labels_.size(), rows_);
  }
  return absl::OkStatus();
}

absl::StatusOr<Cost> CostMeter::Of(Artifact& other, const std::string& what,
                                   const StepContext& context) {
  Score score(labels_);
  for (int64_t sample = 0; sample < samples_.count(); ++sample) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    context.Report({"accuracy", what, sample, samples_.count()});
    const auto named = [&](const absl::Status& status) {
      return Annotate(status, fmt::format("sample {}", samples_.NameOf(sample)));
    };
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, samples_.Read(sample));
    const auto a = Reference(sample, inputs, context);
    if (!a.ok()) return named(a.status());
    const auto b = other.Run(inputs, context);
    if (!b.ok()) return named(b.status());
    QUENCH_RETURN_IF_ERROR(named(score.Add(*a, *b)));
  }
  QUENCH_RETURN_IF_ERROR(score.Check(budget_));
  return score.cost();
}

absl::StatusOr<std::vector<Tensor>> CostMeter::Reference(int64_t sample,
                                                         const std::vector<Tensor>& inputs,
                                                         const StepContext& context) {
  if (const auto found = references_.find(sample); found != references_.end()) return found->second;
  QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, reference_.Run(inputs, context));
  int64_t bytes = 0;
  for (const Tensor& output : outputs) bytes += static_cast<int64_t>(output.bytes().size());
  if (bytes_ + bytes > kReferenceBytes) return outputs;
  bytes_ += bytes;
  return references_.emplace(sample, std::move(outputs)).first->second;
}

}  // namespace quench::quantizer
