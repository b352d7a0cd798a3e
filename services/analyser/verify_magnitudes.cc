#include "services/analyser/verify_magnitudes.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/base/half.h"
#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/passes/cut.h"
#include "common/runner/inputs.h"

namespace quench::analyser {
namespace {

constexpr double kLargestHalf = 65504;
constexpr int kMostRuns = 10;    // of the model
constexpr int kMostPowers = 96;  // of two
// Rounding within the model counts as this many roundings of its inputs, as in DefaultTolerance.
constexpr double kRoundings = 16;
constexpr double kHalfRounding = 0x1p-11;  // of f16, relative
constexpr double kLargestTolerance = 2;    // beyond it nothing is compared but what is finite

template <size_t n>
bool Among(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Operators that the passes keep out of f16, and those that hand values on as large as they are.
constexpr std::string_view kGrowing[] = {
    "Exp",        "Pow",    "Sinh",   "Cosh", "ReduceSum", "ReduceL1", "ReduceSumSquare",
    "ReduceProd", "CumSum", "CumProd"};
constexpr std::string_view kHanding[] = {"Add",     "Sub",       "Mul",     "ReduceMean", "Cast",
                                         "Sum",     "Identity",  "Reshape", "Transpose",  "Squeeze",
                                         "Flatten", "Unsqueeze", "Expand",  "Concat",     "Slice",
                                         "Split",   "Gather",    "Where",   "Neg",        "Abs"};

std::set<std::string> ValuesKeptOut(const Graph& model) {
  std::vector<bool> out(model.values.size(), false);
  std::set<std::string> names;
  for (const Node& node : model.nodes) {
    const auto is_out = [&](ValueId id) { return id != kNone && out[static_cast<size_t>(id)]; };
    const bool square = node.op == "Mul" && node.inputs[0] == node.inputs[1];
    const bool grows = square || Among(kGrowing, node.op) ||
                       (Among(kHanding, node.op) && std::ranges::any_of(node.inputs, is_out));
    if (!grows) continue;
    for (const ValueId id : node.outputs) {
      if (id == kNone) continue;
      out[static_cast<size_t>(id)] = true;
      names.insert(model.value(id).name);
    }
  }
  return names;
}

// Adds the names that values in f16 of the outermost graph, those within groups included, have in the
// model: `h` is `h.f16` where f32 readers have it cast back.
void AddHalves(const Graph& graph, std::set<std::string>& names) {
  constexpr std::string_view kSuffix = ".f16";
  for (const Value& value : graph.values) {
    if (value.type.dtype != DataType::kF16 || value.constant != nullptr) continue;
    names.insert(value.name);
    if (value.name.ends_with(kSuffix))
      names.insert(value.name.substr(0, value.name.size() - kSuffix.size()));
  }
  for (const Node& node : graph.nodes) {
    const GraphPtr body = node.IsGroup() ? node.Body("body") : nullptr;
    if (body != nullptr) AddHalves(*body, names);
  }
}

bool IsDynamicFloat(const Value& value) {
  return value.constant == nullptr && IsFloat(value.type.dtype);
}

MagnitudeLimits HalfLimits(const Graph& model, const Graph& rewritten) {
  MagnitudeLimits limits{DataType::kF16, {}};
  std::set<std::string> halves;
  AddHalves(rewritten, halves);
  if (halves.empty()) return limits;
  const std::set<std::string> kept_out = ValuesKeptOut(model);
  for (const Value& value : model.values) {
    if (IsDynamicFloat(value) && halves.contains(value.name) && !kept_out.contains(value.name))
      limits.largest[value.name] = kLargestHalf;
  }
  for (const ValueId id : model.inputs) {  // they are rounded to f16 first
    if (IsDynamicFloat(model.value(id))) limits.largest[model.value(id).name] = kLargestHalf;
  }
  return limits;
}

// The largest |x| that a scale and zero point have an integer for; 0 where only a run tells.
double RangeOf(const Graph& model, const Quantizer& quantizer) {
  const auto constant = [&](const std::string& name) -> const Tensor* {
    const std::optional<ValueId> id = model.FindValue(name);
    return id && model.value(*id).constant != nullptr ? &model.value(*id).constant->tensor
                                                      : nullptr;
  };
  const Tensor* scale = constant(quantizer.scale);
  const Tensor* zero = constant(quantizer.zero);
  const int bits = DataTypeBits(quantizer.type);
  if (quantizer.dynamic || scale == nullptr || bits > 16) return 0;
  if (zero == nullptr && !quantizer.zero.empty()) return 0;
  const bool is_signed = quantizer.type == DataType::kI8 || quantizer.type == DataType::kI16 ||
                         quantizer.type == DataType::kI4;
  const double low = is_signed ? -std::ldexp(1, bits - 1) : 0;
  const double high = std::ldexp(1, is_signed ? bits - 1 : bits) - 1;
  double largest = 0;
  for (int64_t i = 0; i < scale->size(); ++i) {
    const double at = zero == nullptr ? 0 : zero->FloatAt(std::min(i, zero->size() - 1));
    const double steps = std::max(std::abs(low - at), std::abs(high - at));
    largest = std::max(largest, std::abs(scale->FloatAt(i)) * steps);
  }
  return largest;
}

std::vector<MagnitudeLimits> IntegerLimits(const Graph& model) {
  std::map<DataType, MagnitudeLimits> by_type;
  for (const Quantizer& each : passes::QuantizersOf(model)) {
    const std::optional<ValueId> x = model.FindValue(each.x);
    const double largest = x && model.value(*x).constant == nullptr ? RangeOf(model, each) : 0;
    if (!(largest > 0)) continue;
    MagnitudeLimits& limits = by_type[each.type];
    limits.type = each.type;
    double& of_value = limits.largest.emplace(each.x, largest).first->second;
    of_value = std::max(of_value, largest);
  }
  std::vector<MagnitudeLimits> all;
  for (auto& [type, limits] : by_type) all.push_back(std::move(limits));
  return all;
}

// Element by element; the factor by the element's index.
template <typename Factor>
Tensor Times(const Tensor& tensor, const Factor& factor) {
  Tensor result = Tensor::Zeros(tensor.dtype(), tensor.dims());
  const auto fill = [&]<typename T>(const std::function<T(double)>& narrow) {
    auto* values = reinterpret_cast<T*>(result.mutable_bytes());
    for (int64_t i = 0; i < tensor.size(); ++i) values[i] = narrow(tensor.FloatAt(i) * factor(i));
  };
  switch (tensor.dtype()) {
    case DataType::kF64:
      fill.template operator()<double>([](double x) { return x; });
      break;
    case DataType::kF32:
      fill.template operator()<float>([](double x) { return static_cast<float>(x); });
      break;
    case DataType::kF16:
      fill.template operator()<uint16_t>(
          [](double x) { return FloatToHalf(static_cast<float>(x)); });
      break;
    case DataType::kBF16:
      fill.template operator()<uint16_t>(
          [](double x) { return FloatToBfloat16(static_cast<float>(x)); });
      break;
    default:
      return tensor;
  }
  return result;
}

int64_t NotFinite(const Tensor& tensor) {
  if (!IsFloat(tensor.dtype())) return 0;
  int64_t count = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) count += std::isfinite(tensor.FloatAt(i)) ? 0 : 1;
  return count;
}

}  // namespace

std::vector<MagnitudeLimits> LimitsOf(const Graph& model, const Graph& rewritten) {
  std::vector<MagnitudeLimits> all = IntegerLimits(model);
  MagnitudeLimits halves = HalfLimits(model, rewritten);
  if (!halves.largest.empty()) all.push_back(std::move(halves));
  return all;
}

// One run of the model.
struct MagnitudeCheck::Reach {
  std::vector<Tensor> outputs;
  int64_t not_finite = 0;  // elements of the outputs and of values that have limits
  double nearest = 0;      // magnitude / limit, the largest
  std::string value;
  double magnitude = 0, limit = 0;
};

absl::StatusOr<MagnitudeCheck::Reach> MagnitudeCheck::Measure(const std::vector<Tensor>& inputs,
                                                              const StepContext& context) const {
  Reach reach;
  const auto look = [&](const std::string& name, const Tensor& tensor) {
    const auto found = limits_.largest.find(name);
    if (found == limits_.largest.end()) return;
    double largest = 0;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const double number = std::abs(tensor.FloatAt(i));
      if (std::isfinite(number)) largest = std::max(largest, number);
    }
    reach.not_finite += NotFinite(tensor);
    if (largest <= reach.nearest * found->second) return;
    reach.nearest = largest / found->second;
    reach.value = name;
    reach.magnitude = largest;
    reach.limit = found->second;
  };
  for (size_t i = 0; i < inputs.size(); ++i) look(model_.value(model_.inputs[i]).name, inputs[i]);
  ops::EvaluateOptions options;
  options.on_value = look;
  QUENCH_ASSIGN_OR_RETURN(reach.outputs, ops::Evaluate(model_, inputs, context, options));
  for (const Tensor& output : reach.outputs) reach.not_finite += NotFinite(output);
  return reach;
}

absl::StatusOr<ScaledInputs> MagnitudeCheck::Scale(const std::vector<Tensor>& inputs,
                                                   const StepContext& context) const {
  // Floats: a tenth of the limit, and never beyond half of it, for products are summed in parts.
  // Integers: their whole range; what is beyond becomes its end on both sides.
  const bool half = limits_.type == DataType::kF16;
  const double wanted = half ? 0.1 : 0.9, most = half ? 0.5 : INFINITY;
  const bool given = !options_.ranges.empty();  // inputs are as wide as they were asked to be
  QUENCH_ASSIGN_OR_RETURN(const std::vector<bool> scaled, AnyMagnitude(model_));
  if (!given && std::ranges::find(scaled, true) == scaled.end())
    return absl::FailedPreconditionError("no input is a float that may have any magnitude");
  std::optional<ScaledInputs> near, far;  // the least that comes near, the largest that does not
  int64_t not_finite = 0;                 // elements that are so at any magnitude: masks
  int floor = -kMostPowers, ceiling = kMostPowers, exponent = 0;
  for (int run = 0; run < kMostRuns && ceiling - floor > 1; ++run) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    std::vector<Tensor> tried = inputs;
    for (size_t i = 0; i < tried.size() && exponent != 0; ++i) {
      if (scaled[i]) tried[i] = Times(tried[i], [&](int64_t) { return std::ldexp(1, exponent); });
    }
    QUENCH_ASSIGN_OR_RETURN(Reach reach, Measure(tried, context));
    if (run == 0) not_finite = reach.not_finite;
    const double nearest = reach.nearest;
    const bool usable = reach.not_finite <= not_finite && nearest <= most;
    const bool reached = !usable || nearest >= wanted;
    ScaledInputs sample{std::move(tried), std::move(reach.outputs), exponent,
                        reach.value,      reach.magnitude,          reach.limit};
    if (given) return sample;
    // Between the two the exponents that were tried close in.
    if (usable) (reached ? near : far) = std::move(sample);
    if (usable && reached && nearest < (half ? 2 * wanted : 4)) break;
    (reached ? ceiling : floor) = exponent;
    // As if the value were proportional to the inputs.
    const double powers = nearest > 0 ? std::log2(wanted / nearest) : kMostPowers;
    const int step = static_cast<int>(std::ceil(std::clamp<double>(powers, -kMostPowers, 32)));
    exponent += usable || nearest > most ? step : -4;
    exponent = std::clamp(exponent, floor + 1, std::max(ceiling - 1, floor + 1));
  }
  if (near) return *std::move(near);
  if (far) return *std::move(far);
  return absl::FailedPreconditionError("the model has no finite results at any magnitude");
}

absl::Status MagnitudeCheck::Compare(const ScaledInputs& sample, Artifact& artifact,
                                     const std::map<std::string, ValueError>& tolerances,
                                     MagnitudeReport& report, const StepContext& context) const {
  std::vector<Tensor> moved = sample.inputs;
  uint64_t state = options_.seed;
  for (Tensor& input : moved) {
    input = Times(input, [&](int64_t) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return 1 + (state >> 63 == 0 ? kHalfRounding : -kHalfRounding);
    });
  }
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> nudged, ops::Evaluate(model_, moved, context));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> actual, artifact.Run(sample.inputs, context));
  for (size_t i = 0; i < actual.size(); ++i) {
    ValueError value = tolerances.at(artifact.outputs()[i].name);
    const double rounding = kRoundings * RelativeError(nudged[i], sample.expected[i]);
    if (value.tolerance > 0) {
      value.tolerance =
          std::clamp(rounding, value.tolerance, std::max(value.tolerance, kLargestTolerance));
    }
    value.error = RelativeError(actual[i], sample.expected[i]);
    report.outputs.push_back(value);
  }
  report.passed = std::ranges::all_of(report.outputs, &ValueError::passed);
  return absl::OkStatus();
}

absl::StatusOr<std::string> MagnitudeCheck::FirstNotFinite(const ScaledInputs& sample,
                                                           Artifact& twin,
                                                           const StepContext& context) const {
  std::map<std::string, int64_t> not_finite;  // elements, of the model's values
  ops::EvaluateOptions options;
  options.on_value = [&](const std::string& name, const Tensor& tensor) {
    not_finite[name] = NotFinite(tensor);
  };
  QUENCH_RETURN_IF_ERROR(ops::Evaluate(model_, sample.inputs, context, options).status());
  std::string first;
  const auto look = [&](const std::string& name, const Tensor& tensor) {
    const auto found = not_finite.find(name);
    if (first.empty() && found != not_finite.end() && NotFinite(tensor) > found->second)
      first = name;
  };
  QUENCH_RETURN_IF_ERROR(twin.Run(sample.inputs, context, look).status());
  return first;
}

}  // namespace quench::analyser
