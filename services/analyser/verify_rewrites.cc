#include "services/analyser/verify_rewrites.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "common/base/status.h"
#include "common/ops/evaluate.h"

namespace quench::analyser {
namespace {

using passes::CutAt;
using passes::IntegerErrors;

bool SameBytes(const Tensor& a, const Tensor& b) {
  const auto x = a.bytes(), y = b.bytes();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size()) == 0;
}

// As ONNX defines DynamicQuantizeLinear: -min(x, 0) / scale, before it is rounded.
double ZeroPointOf(const Tensor& x, double scale) {
  double least = 0;
  for (int64_t i = 0; i < x.size(); ++i) least = std::min(least, x.FloatAt(i));
  return -least / scale;
}

}  // namespace

// One evaluation of the cut model: sees its values as they are made, and holds what quantizers
// read until they have made theirs.
class RewriteCheck::Comparison {
 public:
  Comparison(RewriteCheck& check, const Tensors& taps) : check_(check), taps_(taps) {
    for (const Quantizer& group : check.groups_) {
      for (const std::string& name : {group.x, group.scale, group.zero}) ++readers_[name];
      // The last of a node's results to be made.
      by_trigger_[group.dynamic ? group.zero : group.value].push_back(&group);
      ++readers_[group.value];
    }
  }

  void Hold(const std::string& name, const Tensor& tensor) {
    if (readers_.contains(name)) held_[name] = tensor;
  }

  void OnValue(const std::string& name, const Tensor& tensor) {
    Hold(name, tensor);
    const auto found = by_trigger_.find(name);
    if (found == by_trigger_.end()) return;
    for (const Quantizer* group : found->second) {
      Compare(*group);
      for (const std::string& read : {group->x, group->scale, group->zero, group->value}) {
        if (--readers_[read] == 0) held_.erase(read);
      }
    }
  }

 private:
  const Tensor* Find(const std::string& name) const {
    const auto held = held_.find(name);
    if (held != held_.end()) return &held->second;
    const std::optional<ValueId> id = name.empty() ? std::nullopt : check_.cut_.FindValue(name);
    const bool constant = id && check_.cut_.value(*id).constant != nullptr;
    return constant ? &check_.cut_.value(*id).constant->tensor : nullptr;
  }

  void Compare(const Quantizer& group) {
    const Tensor& computed = held_.at(group.value);
    const Tensor& actual = taps_.at(group.value);
    GroupFailure& failure = check_.failures_[group.value];
    failure.node = group.node;
    failure.value = group.value;
    failure.elements += actual.size();
    check_.report_.elements += actual.size();
    if (computed.dims() != actual.dims()) {
      failure.wrong += actual.size();
      return;
    }
    if (group.dynamic) CompareZeroPoint(group, failure);
    if (!SameBytes(computed, actual)) CompareElements(group, computed, actual, failure);
  }

  void CompareElements(const Quantizer& group, const Tensor& computed, const Tensor& actual,
                       GroupFailure& failure) {
    const Tensor* x = Find(group.x);
    const Tensor* scale = Find(group.scale);
    const auto fed = taps_.find(group.zero);  // of a dynamic range: the library's own
    const Tensor* zero = fed != taps_.end() ? &fed->second : Find(group.zero);
    QUENCH_CHECK(x != nullptr && scale != nullptr);  // operands are made before results
    Add(passes::JudgeElements(group, computed, actual, *x, *scale, zero), failure);
  }

  void CompareZeroPoint(const Quantizer& group, GroupFailure& failure) {
    const auto fed = taps_.find(group.zero);
    if (fed == taps_.end() || SameBytes(fed->second, held_.at(group.zero))) return;
    const Tensor* x = Find(group.x);
    const double steps = ZeroPointOf(*x, held_.at(group.scale).FloatAt(0));
    const int64_t actual = fed->second.IntAt(0);
    IntegerErrors errors;
    errors.Count(
        passes::Judge(actual, steps, 0, group.type, passes::TieWidth(x->dtype(), group.type)), 0,
        actual, steps);
    Add(errors, failure);
  }

  void Add(const IntegerErrors& errors, GroupFailure& failure) {
    check_.report_.ties += errors.ties;
    if (errors.wrong == 0) return;
    const auto distance = [](int64_t integer, double real) {
      return std::abs(static_cast<double>(integer) - real);
    };
    const bool farther = failure.wrong == 0 || distance(errors.actual, errors.expected) >
                                                   distance(failure.actual, failure.expected);
    failure.wrong += errors.wrong;
    if (!farther) return;
    failure.index = errors.index;
    failure.actual = errors.actual;
    failure.expected = errors.expected;
  }

  RewriteCheck& check_;
  const Tensors& taps_;
  std::map<std::string, std::vector<const Quantizer*>> by_trigger_;
  std::map<std::string, int> readers_;
  std::map<std::string, Tensor> held_;
};

bool RewriteCheck::NeedsTwin(const Graph& model) {
  return std::any_of(model.nodes.begin(), model.nodes.end(), [](const Node& node) {
    return node.op == "QuantizeLinear" || node.op == "DynamicQuantizeLinear" ||
           node.op.starts_with("QLinear");
  });
}

absl::StatusOr<RewriteCheck> RewriteCheck::Create(const Graph& model, const Graph& rewritten,
                                                  const VerifyOptions& options, Artifact* twin) {
  QUENCH_ASSIGN_OR_RETURN(Graph expanded, passes::ExpandLinear(model));
  RewriteCheck check(std::move(expanded), rewritten, twin);
  check.quantizers_ = passes::QuantizersOf(check.model_);
  for (const Quantizer& each : check.quantizers_) {
    check.wanted_[each.value] = each.type;
    if (each.dynamic) check.wanted_[each.zero] = each.type;
  }
  RewritesReport& report = check.report_;
  report.quantized = !check.quantizers_.empty();
  report.checked = !report.quantized || twin != nullptr;
  if (!report.checked) report.reason = "there is no build with taps to show the library's integers";
  // Groups have a rule of their own, which the caller's tolerance does not touch.
  const std::map<std::string, ValueError> tolerances =
      Tolerances(rewritten, report.quantized ? std::nullopt : options.tolerance);
  const std::map<std::string, ValueError> of_model =
      Tolerances(model, report.quantized ? std::nullopt : options.tolerance);
  for (const ValueId id : model.outputs) {
    const std::string& name = model.value(id).name;
    ValueError value = of_model.at(name);
    const auto found = tolerances.find(name);  // whichever of the two has the coarser floats
    if (found != tolerances.end() && found->second.tolerance > value.tolerance)
      value = found->second;
    report.outputs.push_back({value, 0});
  }
  check.noise_.resize(model.outputs.size());
  return check;
}

absl::Status RewriteCheck::Add(const std::vector<Tensor>& inputs,
                               const std::vector<Tensor>& outputs, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> expected,
                          ops::Evaluate(model_, inputs, context));
  for (size_t i = 0; i < expected.size(); ++i) {
    const DataType type = expected[i].dtype();
    const bool numbers = IsFloat(type) || IsInteger(type);
    if (numbers && type == outputs[i].dtype() && expected[i].dims() == outputs[i].dims())
      noise_[i].Add(expected[i], outputs[i]);
    if (!report_.quantized)
      Worsen(report_.outputs[i].value, RelativeError(outputs[i], expected[i]));
  }
  return report_.quantized && twin_ != nullptr ? AddGroups(inputs, outputs, context)
                                               : absl::OkStatus();
}

// The library's quantized values.
absl::StatusOr<RewriteCheck::Tensors> RewriteCheck::RunTwin(const std::vector<Tensor>& inputs,
                                                            const std::vector<Tensor>& outputs,
                                                            const StepContext& context) {
  Tensors taps;
  const auto keep = [&](const std::string& name, const Tensor& tensor) {
    const auto found = wanted_.find(name);
    if (found != wanted_.end() && found->second == tensor.dtype()) taps[name] = tensor;
  };
  QUENCH_RETURN_IF_ERROR(twin_->Run(inputs, context, keep).status());
  for (size_t i = 0; i < outputs.size(); ++i)  // of outputs the library's own, not its twin's
    keep(model_.value(model_.outputs[i]).name, outputs[i]);
  return taps;
}

// Values within fused groups, which taps cannot show: as the rewritten graph has them, group by
// group from the library's own integers.
absl::Status RewriteCheck::AddHidden(const std::vector<Tensor>& inputs, Tensors& taps,
                                     const StepContext& context) {
  std::vector<std::string> shown;
  std::set<std::string> hidden;
  for (const auto& [name, type] : wanted_) {
    const std::optional<ValueId> id = rewritten_->FindValue(name);
    if (!id || rewritten_->value(*id).type.dtype != type) continue;
    if (taps.contains(name)) {
      shown.push_back(name);
    } else {
      hidden.insert(name);
    }
  }
  if (hidden.empty()) return absl::OkStatus();
  std::vector<Tensor> operands = inputs;
  for (const std::string& name : shown) operands.push_back(taps.at(name));
  ops::EvaluateOptions options;
  options.on_value = [&](const std::string& name, const Tensor& tensor) {
    if (hidden.contains(name)) taps[name] = tensor;
  };
  return ops::Evaluate(CutAt(*rewritten_, shown), operands, context, options).status();
}

void RewriteCheck::ChooseGroups(const Tensors& taps) {
  for (const Quantizer& each : quantizers_) {
    if (!taps.contains(each.value)) {
      report_.without_counterpart.push_back(each.value);
      continue;
    }
    groups_.push_back(each);
    fed_.push_back(each.value);
    if (each.dynamic && taps.contains(each.zero)) fed_.push_back(each.zero);
  }
  report_.groups = static_cast<int64_t>(groups_.size());
  cut_ = CutAt(model_, fed_);
}

absl::Status RewriteCheck::AddGroups(const std::vector<Tensor>& inputs,
                                     const std::vector<Tensor>& outputs,
                                     const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(Tensors taps, RunTwin(inputs, outputs, context));
  QUENCH_RETURN_IF_ERROR(AddHidden(inputs, taps, context));
  if (cut_.nodes.empty()) ChooseGroups(taps);
  std::vector<Tensor> operands = inputs;
  for (const std::string& name : fed_) operands.push_back(taps.at(name));
  Comparison comparison(*this, taps);
  for (size_t i = 0; i < inputs.size(); ++i)
    comparison.Hold(cut_.value(cut_.inputs[i]).name, inputs[i]);
  ops::EvaluateOptions options;
  options.on_value = [&](const std::string& name, const Tensor& tensor) {
    comparison.OnValue(name, tensor);
  };
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> expected,
                          ops::Evaluate(cut_, operands, context, options));
  for (size_t i = 0; i < expected.size(); ++i) {
    ValueError& value = report_.outputs[i].value;
    if (!taps.contains(value.name)) Worsen(value, RelativeError(outputs[i], expected[i]));
  }
  return absl::OkStatus();
}

RewritesReport RewriteCheck::Finish() {
  for (size_t i = 0; i < noise_.size(); ++i) report_.outputs[i].sqnr_db = noise_[i].SqnrDb();
  for (const Quantizer& group : groups_) {  // in the model's order
    const GroupFailure& failure = failures_[group.value];
    if (failure.wrong > 0) report_.failures.push_back(failure);
  }
  if (!report_.checked) return std::move(report_);
  report_.passed = report_.failures.empty() && (!report_.quantized || report_.groups > 0) &&
                   std::all_of(report_.outputs.begin(), report_.outputs.end(),
                               [](const OutputReport& each) { return each.value.passed(); });
  return std::move(report_);
}

}  // namespace quench::analyser
