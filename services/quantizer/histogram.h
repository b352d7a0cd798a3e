// Histogram of a tensor's values, for tensors whose range is not known beforehand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quench::quantizer {

// Bins of equal width 2^exponent, aligned to zero: bin k holds [k, k + 1) * 2^exponent. They reach
// from the least value seen to the greatest, and to zero, which every quantized range includes. The
// width is the smallest for which kMaxBins suffice, so more than half of them are in use. It
// doubles when the range grows, which joins pairs of bins and loses no count: the contents of a
// histogram depend only on the values added, never on their order or on how it was merged.
class Histogram {
 public:
  static constexpr int64_t kMaxBins = 4096;

  // `low` and `high` are the extrema of `values`, which are finite and not empty.
  void Add(std::span<const float> values, float low, float high);
  void Merge(const Histogram& other);

  bool empty() const { return counts_.empty(); }
  int exponent() const { return exponent_; }
  double width() const;
  int64_t first_bin() const { return first_bin_; }
  std::span<const uint64_t> counts() const { return counts_; }  // of first_bin() and those after it
  uint64_t total() const;
  // Lower edge of the bin `counts()[i]`; of i = size, the upper edge of the last.
  double Edge(size_t i) const;

  // Inconsistent parts give an empty histogram: exponent out of range, too many bins, no bin of
  // zero.
  static Histogram FromParts(int exponent, int64_t first_bin, std::vector<uint64_t> counts);

 private:
  void Cover(double low, double high);
  void Widen(int exponent);
  void Extend(int64_t first, int64_t last);  // bins, inclusive

  int exponent_ = 0;
  int64_t first_bin_ = 0;
  std::vector<uint64_t> counts_;
};

// Counts of |x|: bin k holds [k, k + 1) * width, as bins are aligned to zero.
std::vector<uint64_t> Magnitudes(const Histogram& histogram);

}  // namespace quench::quantizer
