// The numbers inside parameters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "services/analyser/parameters.h"

namespace quench::analyser {
namespace {

constexpr int kParts = 20;

// Where `value` of [min, max] lies.
size_t PartOf(double value, double min, double max) {
  if (!(max > min)) return 0;
  // Halves keep the difference of the largest doubles finite.
  const double share = (value / 2 - min / 2) / (max / 2 - min / 2);
  return static_cast<size_t>(std::clamp<int>(static_cast<int>(share * kParts), 0, kParts - 1));
}

// Calls `visit` with every element that is a number.
template <typename Visit>
void ForEachFinite(const Tensor& tensor, const Visit& visit) {
  if (tensor.dtype() == DataType::kF32) {
    for (const float value : tensor.as<float>()) {
      if (std::isfinite(value)) visit(static_cast<double>(value));
    }
    return;
  }
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (const double value = tensor.FloatAt(i); std::isfinite(value)) visit(value);
  }
}

}  // namespace

WeightReport StatisticsOf(const ParameterList::Parameter& parameter) {
  const Tensor& tensor = *parameter.tensor;
  WeightReport report;
  report.name = parameter.name;
  report.layer = parameter.layer;
  report.type = fmt::format("{}[{}]", DataTypeName(tensor.dtype()), fmt::join(tensor.dims(), ", "));
  report.elements = tensor.size();
  double min = std::numeric_limits<double>::infinity(), max = -min;
  double mean = 0, squares = 0;  // Welford's: no difference of large sums
  int64_t count = 0;
  ForEachFinite(tensor, [&](double value) {
    ++count;
    if (value == 0) ++report.zeros;
    min = std::min(min, value);
    max = std::max(max, value);
    const double off = value - mean;
    mean += off / static_cast<double>(count);
    squares += off * (value - mean);
  });
  report.not_finite = report.elements - count;
  if (count == 0) return report;
  report.min = min;
  report.max = max;
  report.mean = mean;
  report.std = std::sqrt(squares / static_cast<double>(count));
  report.histogram.assign(kParts, 0);
  ForEachFinite(tensor, [&](double value) { ++report.histogram[PartOf(value, min, max)]; });
  return report;
}

}  // namespace quench::analyser
