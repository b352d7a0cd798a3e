// Percentile: the rarest 100 - P percent are clipped, half of them at each end. A symmetric range
// is cut once, by magnitude.
//   low = quantile((100 - P) / 200)   high = quantile(1 - (100 - P) / 200)   of the values
//   symmetric: high = -low = quantile(P / 100) of |x|, cut to what was seen
#include <algorithm>

#include "services/quantizer/methods/method.h"

namespace quench::quantizer {
namespace {

// The value below which `below` of the `counts` lie, counted from `first_edge`; a bin's values lie
// evenly in it.
double Quantile(std::span<const uint64_t> counts, double first_edge, double width, double below) {
  double passed = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto here = static_cast<double>(counts[i]);
    if (here > 0 && passed + here >= below) {
      const double part = std::clamp((below - passed) / here, 0.0, 1.0);
      return first_edge + (static_cast<double>(i) + part) * width;
    }
    passed += here;
  }
  return first_edge + static_cast<double>(counts.size()) * width;
}

}  // namespace

Range Percentile(const TensorStatistics& statistics, const MethodOptions& options) {
  const Histogram& histogram = statistics.histogram;
  const auto total = static_cast<double>(histogram.total());
  const auto seen = [&](double value) {
    return std::clamp(value, double{statistics.low}, double{statistics.high});
  };
  if (options.scheme.symmetric) {
    const double bound =
        Quantile(Magnitudes(histogram), 0, histogram.width(), total * options.percentile / 100);
    return {seen(-bound), seen(bound)};
  }
  const double cut = total * (100 - options.percentile) / 200;
  const auto at = [&](double below) {
    return seen(Quantile(histogram.counts(), histogram.Edge(0), histogram.width(), below));
  };
  return {at(cut), at(total - cut)};
}

}  // namespace quench::quantizer
