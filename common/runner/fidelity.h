// How near one run's results are to another's.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ir/tensor.h"

namespace quench {

// Sums over the elements of one value, of two runs: a is the reference's, b the other's.
struct NoiseSums {
  int64_t elements = 0;
  double a2 = 0, b2 = 0, ab = 0;  // of a^2, b^2, a b
  double noise = 0;               // of (a - b)^2
  double difference = 0;          // of |a - b|
  double max_a = 0;               // max |a|
  double max_error = 0;           // max |a - b|; NaN if any is

  // Both have the same dims and dtype, a float or an integer.
  void Add(const Tensor& a, const Tensor& b);
  // 10 log10(sum a^2 / sum (a - b)^2), in dB; infinite if they are equal.
  double SqnrDb() const;
  // sum ab / sqrt(sum a^2 * sum b^2); 1 if both are zero, 0 if one is.
  double Cosine() const;
};

// Whether scores have an axis of classes: the last, of 2 at least.
bool HasClasses(const Tensor& scores);
// For each row along the last axis its classes, best first, at most `most`; of equal scores the
// first, and no class with a NaN.
std::vector<std::vector<int64_t>> TopClasses(const Tensor& scores, int64_t most);

}  // namespace quench
