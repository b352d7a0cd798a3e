// MSE: the range whose integers are nearest to the values in the mean of squares, clipping included:
//   argmin sum_bins count * (c - dequantized(quantized(c)))^2      c: the middle of a bin
// searched over ranges a * [low, high] for 80 factors a in (0.2, 1], then over each end by itself.
#include <algorithm>
#include <cmath>
#include <limits>

#include "services/quantizer/methods/method.h"

namespace quench::quantizer {
namespace {

double SquaredError(const Histogram& histogram, const Range& range, const Scheme& scheme) {
  const Affine affine = AffineFor(range, scheme);
  const double scale = affine.scale, inverse = 1 / scale;
  const double least = affine.least - affine.zero_point;
  const double greatest = affine.greatest - affine.zero_point;
  double error = 0;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    const auto count = static_cast<double>(histogram.counts()[i]);
    if (count == 0) continue;
    const double middle = histogram.Edge(i) + histogram.width() / 2;
    const double level = std::clamp(std::nearbyint(middle * inverse), least, greatest);
    const double difference = middle - level * scale;
    error += count * difference * difference;
  }
  return error;
}

}  // namespace

Range MeanSquaredError(const TensorStatistics& statistics, const MethodOptions& options) {
  constexpr int kFactors = 80;
  const Range all = {statistics.low, statistics.high};
  Range best = all;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const Range& range) {
    const double error = SquaredError(statistics.histogram, range, options.scheme);
    if (error >= least) return;
    least = error;
    best = range;
  };
  const auto factor = [](int i) { return 1 - 0.8 * i / kFactors; };
  for (int i = 0; i < kFactors; ++i) consider({all.low * factor(i), all.high * factor(i)});
  if (options.scheme.symmetric) return best;
  const double high = best.high;
  for (int i = 0; i < kFactors; ++i) consider({all.low * factor(i), high});
  const double lower = best.low;
  for (int i = 0; i < kFactors; ++i) consider({lower, all.high * factor(i)});
  return best;
}

}  // namespace quench::quantizer
