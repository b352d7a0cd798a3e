#include "services/codegen/check/judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "services/codegen/check/compare.h"

namespace quench::codegen {
namespace {

bool SameType(const JudgedValue& value) {
  return value.actual.dims() == value.expected.dims() &&
         value.actual.dtype() == value.expected.dtype();
}

std::string TypeText(const Tensor& tensor) {
  return fmt::format("{}[{}]", DataTypeName(tensor.dtype()), fmt::join(tensor.dims(), ", "));
}

}  // namespace

CheckJudge::CheckJudge(const Graph& source, const Graph& compiled, const CheckGroups& groups,
                       const Quantizers& quantizers, double coarseness)
    : source_(source),
      compiled_(compiled),
      groups_(groups),
      quantizers_(quantizers),
      coarseness_(coarseness) {}

double CheckJudge::ToleranceOf(ValueId id) {
  if (of_source_.empty()) {
    of_source_ = passes::Tolerances(source_, std::nullopt);
    of_code_ = passes::Tolerances(compiled_, std::nullopt);
  }
  const std::string& name = source_.value(id).name;
  double tolerance = of_source_.at(name).tolerance;
  const auto counterpart = groups_.counterparts.find(id);
  const auto found = of_code_.find(
      counterpart == groups_.counterparts.end() ? name : counterpart->second.compiled);
  if (found != of_code_.end() && tolerance > 0)
    tolerance = std::max(tolerance, found->second.tolerance);
  // Constants may have been made of what is rounded.
  if (tolerance > 0 && IsCoarse()) tolerance = std::max(tolerance, coarseness_);
  return tolerance;
}

std::optional<Mismatch> CheckJudge::Judge(const JudgedValue& value, const Operands& operands) {
  const auto quantizer = quantizers_.find(source_.value(value.target).name);
  if (quantizer != quantizers_.end() && SameType(value))
    return JudgeIntegers(value, quantizer->second, operands);
  return JudgeByTolerance(value);
}

std::optional<Mismatch> CheckJudge::JudgeIntegers(const JudgedValue& value,
                                                  const passes::Quantizer& quantizer,
                                                  const Operands& operands) {
  const Tensor* x = operands(quantizer.x);
  const Tensor* scale = operands(quantizer.scale);
  const Tensor* zero = operands(quantizer.zero);
  if (x == nullptr || scale == nullptr) return std::nullopt;
  const passes::IntegerErrors errors =
      passes::JudgeElements(quantizer, value.expected, value.actual, *x, *scale, zero);
  if (errors.wrong == 0) return std::nullopt;
  // The coarser rounding is relative to the whole range of the integers.
  constexpr double kRange = 256;
  const double off = std::abs(static_cast<double>(errors.actual) - errors.expected);
  if (IsCoarse() && off <= 1 + kRange * coarseness_) {
    ++undecided_;
    return std::nullopt;
  }
  return Mismatch{source_.value(value.target).name,
                  value.actual.dims(),
                  errors.index,
                  fmt::format("{}", errors.actual),
                  fmt::format("{:.9g} before it is rounded", errors.expected),
                  0,
                  0};
}

// Values that are stored in 16 bits, or multiplied as TF32, are rounded on the way, where the model
// has f32: elements near a
// step or a pole, of any operator, come out otherwise. One in eight may, and one of fewer, by as much
// as the largest of them, and never as what is not a number.
bool CheckJudge::MayBeRounding(const JudgedValue& value, int64_t wrong, double error) const {
  return IsCoarse() && SameType(value) && error <= 1 &&
         8 * wrong <= std::max<int64_t>(value.actual.size(), 8);
}

// How many different elements there are, say, and which of them each element is.
bool CheckJudge::SizeMayBeRounding(const JudgedValue& value) const {
  const Value& target = source_.value(value.target);
  const auto open = [](Dim dim) { return !dim.is_static(); };
  const std::vector<ValueId>& made = source_.node(target.producer).outputs;
  const bool decides = std::any_of(made.begin(), made.end(), [&](ValueId id) {
    if (id == quench::kNone) return false;
    const std::vector<Dim>& dims = source_.value(id).type.dims;
    return std::any_of(dims.begin(), dims.end(), open);
  });
  const std::vector<Dim>& dims = target.type.dims;
  bool same = value.actual.dtype() == value.expected.dtype() &&
              value.actual.dims().size() == dims.size() &&
              value.expected.dims().size() == dims.size();
  for (size_t i = 0; same && i < dims.size(); ++i)
    same = open(dims[i]) || value.actual.dims()[i] == value.expected.dims()[i];
  return IsCoarse() && decides && same;
}

std::optional<Mismatch> CheckJudge::JudgeByTolerance(const JudgedValue& value) {
  const double tolerance = ToleranceOf(value.target);
  // A difference that cancels has the rounding of its terms, which is much larger where these are coarse.
  constexpr double kCancelling = 25;
  const double inner = IsCoarse() ? kCancelling * value.inner : value.inner;
  Comparison compared = Compare(value.actual, value.expected, tolerance, inner);
  if (compared.wrong > 0 && IsCoarse() && SameType(value) && value.rounded) {
    compared = Compare(value.actual, value.expected, tolerance, inner, value.rounded());
    if (compared.wrong == 0) {
      ++undecided_;
      return std::nullopt;
    }
  }
  if (compared.wrong == 0) {
    if (IsFloat(value.actual.dtype())) largest_error_ = std::max(largest_error_, compared.error);
    return std::nullopt;
  }
  // A few elements may fall on the other side of a step.
  const bool steps = std::any_of(value.nodes.begin(), value.nodes.end(), [&](NodeId id) {
    return RoundingDecides(source_, source_.node(id));
  });
  const bool few = steps && value.nodes.size() > 1 &&
                   50 * compared.wrong <= std::max<int64_t>(value.actual.size(), 50);
  if (few || SizeMayBeRounding(value) || MayBeRounding(value, compared.wrong, compared.error)) {
    ++undecided_;
    return std::nullopt;
  }
  Mismatch mismatch{source_.value(value.target).name,
                    {},
                    compared.worst,
                    TypeText(value.actual),
                    TypeText(value.expected),
                    compared.error,
                    tolerance};
  if (SameType(value)) {
    mismatch.dims = value.actual.dims();
    mismatch.actual = ElementText(value.actual, compared.worst);
    mismatch.expected = ElementText(value.expected, compared.worst);
  }
  return mismatch;
}

}  // namespace quench::codegen
