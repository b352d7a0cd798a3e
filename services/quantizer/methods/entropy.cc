// Entropy: the threshold T at which quantizing loses the least information, after S. Migacz, "8-bit
// Inference with TensorRT" (GTC 2017). For candidates T at bin edges of |x|:
//   P = counts of the bins up to T, what lies beyond added to the last that is not empty
//   Q = the same bins joined into as many levels as [0, T] has integers, each level's count spread
//       evenly over its bins that are not empty
//   T = argmin sum_i p_i * log(p_i / q_i)      p, q: P, Q divided by their sums
// Zeros, which every range has exactly, count no more than their neighbours. Few elements are
// counted in fewer bins, because otherwise chance is compared. P and Q do not tell how far values
// lie beyond T, nor how many there are of a few kinds (an image's background). Therefore, except
// for one element in ten thousand, which is an outlier, clipping may not lose more than rounding
// does if nothing is clipped: sum over |x| > T of (|x| - T)^2 <= count * step^2 / 12. The range is
// [-T, T] cut to what was seen.
// One-sided values of an asymmetric scheme have all its integers in [0, T], others half of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "services/quantizer/methods/method.h"

namespace quench::quantizer {
namespace {

constexpr size_t kCandidates = 256;
constexpr double kOutliers = 1e-4;  // of all elements
constexpr uint64_t kEnough = 64;    // elements in a bin that is not empty, on average

// Divergence of the first `bins` of `counts`, joined into `levels`.
double Divergence(std::span<const uint64_t> counts, size_t bins, size_t levels) {
  double inside = 0, beyond = 0;
  size_t last = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    (i < bins ? inside : beyond) += static_cast<double>(counts[i]);
    if (i < bins && counts[i] > 0) last = i;
  }
  if (inside == 0) return std::numeric_limits<double>::infinity();
  double divergence = 0;
  for (size_t level = 0; level < levels; ++level) {
    const size_t begin = level * bins / levels, end = (level + 1) * bins / levels;
    double joined = 0, filled = 0;
    for (size_t i = begin; i < end; ++i) {
      joined += static_cast<double>(counts[i]);
      filled += counts[i] > 0 ? 1 : 0;
    }
    if (filled == 0) continue;
    const double q = joined / filled / inside;
    for (size_t i = begin; i < end; ++i) {
      if (counts[i] == 0) continue;
      const double clipped = i == last ? beyond : 0;
      const double p = (static_cast<double>(counts[i]) + clipped) / (inside + beyond);
      divergence += p * std::log(p / q);
    }
  }
  return divergence;
}

// Elements that are clipped to the first `bins`.
struct Clipped {
  double elements = 0;
  double error = 0;  // sum of squares, of centres of bins in widths of bins
};
Clipped ClippedTo(std::span<const uint64_t> counts, size_t bins) {
  Clipped clipped;
  for (size_t i = bins; i < counts.size(); ++i) {
    const double beyond = static_cast<double>(i - bins) + 0.5;
    clipped.elements += static_cast<double>(counts[i]);
    clipped.error += static_cast<double>(counts[i]) * beyond * beyond;
  }
  return clipped;
}

// Pairs of bins joined until there are few enough; how many are one then.
size_t JoinBins(std::vector<uint64_t>& counts, size_t levels) {
  size_t joined = 1;
  const auto sparse = [&] {
    uint64_t total = 0, filled = 0;
    for (const uint64_t count : counts) {
      total += count;
      filled += count > 0 ? 1 : 0;
    }
    return total < kEnough * filled;
  };
  while (counts.size() > 2 * levels && sparse()) {
    for (size_t i = 0; i < counts.size(); i += 2) {
      counts[i / 2] = counts[i] + (i + 1 < counts.size() ? counts[i + 1] : 0);
    }
    counts.resize((counts.size() + 1) / 2);
    joined *= 2;
  }
  return joined;
}

}  // namespace

Range Entropy(const TensorStatistics& statistics, const MethodOptions& options) {
  std::vector<uint64_t> counts = Magnitudes(statistics.histogram);
  const bool one_sided = statistics.low >= 0 || statistics.high <= 0;
  const auto integers = size_t{1} << DataTypeBits(options.scheme.dtype);
  const size_t levels = one_sided && !options.scheme.symmetric ? integers : integers / 2;
  const double width = statistics.histogram.width() * static_cast<double>(JoinBins(counts, levels));
  const auto total = static_cast<double>(statistics.histogram.total());
  if (counts.size() > 1) counts[0] = std::min(counts[0], counts[1]);
  double bound = std::max(std::abs(double{statistics.low}), std::abs(double{statistics.high}));
  const size_t step = std::max<size_t>(1, counts.size() / kCandidates);
  double least = std::numeric_limits<double>::infinity();
  const double rounded = static_cast<double>(counts.size()) / static_cast<double>(levels);
  const double most = total * rounded * rounded / 12;
  // From all of them down, so that of equals the one that clips least is taken.
  for (size_t bins = counts.size(); bins >= levels && bins > 0; bins -= std::min(bins, step)) {
    const Clipped clipped = ClippedTo(counts, bins);
    if (clipped.error > most && clipped.elements > kOutliers * total) break;
    const double divergence = Divergence(counts, bins, levels);
    if (divergence >= least) continue;
    least = divergence;
    bound = static_cast<double>(bins) * width;
  }
  return {std::max(double{statistics.low}, -bound), std::min(double{statistics.high}, bound)};
}

}  // namespace quench::quantizer
