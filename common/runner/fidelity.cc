#include "common/runner/fidelity.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/status.h"

namespace quench {

void NoiseSums::Add(const Tensor& a, const Tensor& b) {
  QUENCH_CHECK(a.size() == b.size() && a.dtype() == b.dtype());
  const auto add = [this](double x, double y) {
    if (x == y && std::isinf(x)) return;  // no noise, and no finite signal: masks
    const double apart = x - y;
    a2 += x * x;
    b2 += y * y;
    ab += x * y;
    noise += apart * apart;
    difference += std::abs(apart);
    max_a = std::max(max_a, std::abs(x));
    // A NaN stays: it must not get lost among numbers.
    if (!std::isnan(max_error) && !(std::abs(apart) <= max_error)) {
      max_error = std::abs(apart);
    }
  };
  elements += a.size();
  if (a.dtype() == DataType::kF32) {
    const std::span<const float> x = a.as<float>(), y = b.as<float>();
    for (size_t i = 0; i < x.size(); ++i) add(x[i], y[i]);
    return;
  }
  for (int64_t i = 0; i < a.size(); ++i) add(a.FloatAt(i), b.FloatAt(i));
}

double NoiseSums::SqnrDb() const {
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(a2 / noise);
}

double NoiseSums::Cosine() const {
  if (a2 == 0 && b2 == 0) return 1;
  return a2 == 0 || b2 == 0 ? 0 : ab / std::sqrt(a2 * b2);
}

bool HasClasses(const Tensor& scores) {
  return scores.rank() >= 1 && scores.dims().back() >= 2 &&
         (IsFloat(scores.dtype()) || IsInteger(scores.dtype()));
}

std::vector<std::vector<int64_t>> TopClasses(const Tensor& scores, int64_t most) {
  const int64_t classes = scores.dims().back();
  std::vector<std::vector<int64_t>> rows;
  for (int64_t begin = 0; begin < scores.size(); begin += classes) {
    const auto score = [&](int64_t c) { return scores.FloatAt(begin + c); };
    std::vector<int64_t> order;
    for (int64_t c = 0; c < classes; ++c) {
      if (!std::isnan(score(c))) order.push_back(c);
    }
    const int64_t count = std::min(most, static_cast<int64_t>(order.size()));
    std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int64_t a, int64_t b) {
      return score(a) != score(b) ? score(a) > score(b) : a < b;
    });
    order.resize(static_cast<size_t>(count));
    rows.push_back(std::move(order));
  }
  return rows;
}

}  // namespace quench
