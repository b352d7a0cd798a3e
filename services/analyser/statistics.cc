#include "services/analyser/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

template <typename Visit>
void ForEach(const Tensor& tensor, const Visit& visit) {
  if (tensor.dtype() == DataType::kF32) {
    for (const float value : tensor.as<float>()) visit(static_cast<double>(value));
    return;
  }
  for (int64_t i = 0; i < tensor.size(); ++i) visit(tensor.FloatAt(i));
}

}  // namespace

TensorStatistics StatisticsOf(const Tensor& tensor) {
  TensorStatistics result;
  result.elements = tensor.size();
  const bool real =
      IsFloat(tensor.dtype()) || IsInteger(tensor.dtype()) || tensor.dtype() == DataType::kBool;
  if (!real) return result;
  double min = std::numeric_limits<double>::infinity(), max = -min;
  double mean = 0, squares = 0;  // Welford's: no difference of large sums
  int64_t count = 0;
  ForEach(tensor, [&](double value) {
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? result.nan : result.infinite);
      return;
    }
    ++count;
    if (value == 0) ++result.zeros;
    min = std::min(min, value);
    max = std::max(max, value);
    const double off = value - mean;
    mean += off / static_cast<double>(count);
    squares += off * (value - mean);
  });
  if (count == 0) return result;
  result.min = min;
  result.max = max;
  result.mean = mean;
  result.std = std::sqrt(squares / static_cast<double>(count));
  result.histogram.assign(kParts, 0);
  ForEach(tensor, [&](double value) {
    if (std::isfinite(value)) ++result.histogram[PartOf(value, min, max)];
  });
  return result;
}

}  // namespace quench::analyser
