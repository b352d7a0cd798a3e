#include "services/quantizer/histogram.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quench::quantizer {
namespace {

constexpr int kLeastExponent = -149;    // a subnormal float's
constexpr int kGreatestExponent = 127;  // the largest float's
// Multiplying by a power of two is exact in double for every float.
int64_t BinOf(double value, int exponent) {
  return static_cast<int64_t>(std::floor(std::ldexp(value, -exponent)));
}

// The least exponent at which [low, high] has at most kMaxBins bins.
int ExponentFor(double low, double high) {
  const double largest = std::max(-low, high);
  if (largest == 0) return kLeastExponent;
  constexpr int kBits = 13;  // of a bin's number; 4096 bins on either side of zero are too many
  int exponent = std::max(kLeastExponent, std::ilogb(largest) - kBits);
  while (BinOf(high, exponent) - BinOf(low, exponent) >= Histogram::kMaxBins) ++exponent;
  return exponent;
}

}  // namespace

double Histogram::width() const { return std::ldexp(1.0, exponent_); }

uint64_t Histogram::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

double Histogram::Edge(size_t i) const {
  return std::ldexp(static_cast<double>(first_bin_ + static_cast<int64_t>(i)), exponent_);
}

void Histogram::Widen(int exponent) {
  const int steps = exponent - exponent_;
  if (steps <= 0) return;
  const auto last_bin = first_bin_ + static_cast<int64_t>(counts_.size()) - 1;
  const auto moved = [&](int64_t bin) {
    return steps >= 63 ? (bin < 0 ? -1 : 0) : bin >> steps;  // rounds down, as BinOf does
  };
  std::vector<uint64_t> wider(static_cast<size_t>(moved(last_bin) - moved(first_bin_) + 1));
  for (size_t i = 0; i < counts_.size(); ++i) {
    const int64_t bin = moved(first_bin_ + static_cast<int64_t>(i));
    wider[static_cast<size_t>(bin - moved(first_bin_))] += counts_[i];
  }
  first_bin_ = moved(first_bin_);
  exponent_ = exponent;
  counts_ = std::move(wider);
}

void Histogram::Extend(int64_t first, int64_t last) {
  if (counts_.empty()) {
    first_bin_ = first;
    counts_.resize(static_cast<size_t>(last - first + 1));
    return;
  }
  const int64_t end = first_bin_ + static_cast<int64_t>(counts_.size()) - 1;
  if (last > end) counts_.resize(counts_.size() + static_cast<size_t>(last - end));
  if (first < first_bin_) {
    counts_.insert(counts_.begin(), static_cast<size_t>(first_bin_ - first), 0);
    first_bin_ = first;
  }
}

void Histogram::Cover(double low, double high) {
  if (counts_.empty()) {
    exponent_ = ExponentFor(low, high);
  } else {
    // The ends of the range so far are known to a bin only; its own width covers it already.
    int exponent = std::max(exponent_, ExponentFor(low, high));
    const auto bins_at = [&](int e) {
      const int steps = e - exponent_;
      const int64_t last = first_bin_ + static_cast<int64_t>(counts_.size()) - 1;
      const int64_t begin = std::min(first_bin_ >> std::min(steps, 62), BinOf(low, e));
      return std::max(last >> std::min(steps, 62), BinOf(high, e)) - begin + 1;
    };
    while (bins_at(exponent) > kMaxBins) ++exponent;
    Widen(exponent);
  }
  Extend(BinOf(low, exponent_), BinOf(high, exponent_));
}

void Histogram::Add(std::span<const float> values, float low, float high) {
  if (values.empty()) return;
  Cover(std::min(double{low}, 0.0), std::max(double{high}, 0.0));
  const double inverse = std::ldexp(1.0, -exponent_);
  for (const float value : values) {
    // Rounded down as BinOf does, without a call.
    const double scaled = double{value} * inverse;
    auto bin = static_cast<int64_t>(scaled);
    if (static_cast<double>(bin) > scaled) --bin;
    ++counts_[static_cast<size_t>(bin - first_bin_)];
  }
}

void Histogram::Merge(const Histogram& other) {
  if (other.counts_.empty()) return;
  if (counts_.empty()) {
    *this = other;
    return;
  }
  Histogram added = other;
  int exponent = std::max(exponent_, added.exponent_);
  for (;; ++exponent) {
    Widen(exponent);
    added.Widen(exponent);
    const int64_t first = std::min(first_bin_, added.first_bin_);
    const int64_t last = std::max(first_bin_ + static_cast<int64_t>(counts_.size()),
                                  added.first_bin_ + static_cast<int64_t>(added.counts_.size())) -
                         1;
    if (last - first >= kMaxBins) continue;
    Extend(first, last);
    break;
  }
  for (size_t i = 0; i < added.counts_.size(); ++i) {
    counts_[static_cast<size_t>(added.first_bin_ - first_bin_) + i] += added.counts_[i];
  }
}

Histogram Histogram::FromParts(int exponent, int64_t first_bin, std::vector<uint64_t> counts) {
  Histogram histogram;
  const auto size = static_cast<int64_t>(std::min(counts.size(), size_t{1} << 32));
  if (exponent < kLeastExponent || exponent > kGreatestExponent || size > kMaxBins ||
      first_bin > 0 || first_bin <= -size) {
    return histogram;
  }
  histogram.exponent_ = exponent;
  histogram.first_bin_ = first_bin;
  histogram.counts_ = std::move(counts);
  return histogram;
}

std::vector<uint64_t> Magnitudes(const Histogram& histogram) {
  std::vector<uint64_t> magnitudes;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    const int64_t bin = histogram.first_bin() + static_cast<int64_t>(i);
    const auto place = static_cast<size_t>(bin < 0 ? -bin - 1 : bin);
    if (magnitudes.size() <= place) magnitudes.resize(place + 1);
    magnitudes[place] += histogram.counts()[i];
  }
  return magnitudes;
}

}  // namespace quench::quantizer
