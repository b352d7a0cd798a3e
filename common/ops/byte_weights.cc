#include "common/ops/byte_weights.h"

#include <algorithm>
#include <cstdlib>

namespace quench::ops {
namespace {

constexpr int64_t kNear = 127;
// The most words that are multiplied twice: kernels have code for each.
constexpr int64_t kMostWords = 64;

}  // namespace

std::optional<int64_t> UniformZero(const Tensor* zero) {
  if (zero == nullptr) return 0;
  if (zero->size() < 1) return std::nullopt;
  for (int64_t i = 1; i < zero->size(); ++i) {
    if (zero->IntAt(i) != zero->IntAt(0)) return std::nullopt;
  }
  return zero->IntAt(0);
}

int64_t NearPart(int64_t w) { return std::clamp(w, -kNear, kNear); }

std::optional<std::vector<WeightWord>> WordsOfTwoParts(const Tensor& weights, int64_t zero) {
  if (weights.rank() < 3 || weights.size() == 0) return std::nullopt;
  const int64_t summed = weights.dims()[1];
  const int64_t taps = weights.size() / weights.dims()[0] / summed;
  const int64_t words = (summed + kWordChannels - 1) / kWordChannels;
  std::vector<bool> twice(static_cast<size_t>(taps * words));
  for (int64_t i = 0; i < weights.size(); ++i) {
    const int64_t distance = std::abs(weights.IntAt(i) - zero);
    if (distance > 2 * kNear) return std::nullopt;
    if (distance > kNear) {
      const int64_t word = i / taps % summed / kWordChannels;
      twice[static_cast<size_t>(i % taps * words + word)] = true;
    }
  }
  std::vector<WeightWord> result;
  for (int64_t i = 0; i < taps * words; ++i) {
    if (twice[static_cast<size_t>(i)]) result.push_back({i / words, i % words});
  }
  const auto count = static_cast<int64_t>(result.size());
  if (count > kMostWords || 2 * count > taps * words) return std::nullopt;
  return result;
}

}  // namespace quench::ops
