// Integer arithmetic that clamps at the int64 limits instead of overflowing, and floor division.
#pragma once

#include <cstdint>
#include <limits>

namespace quench {

inline constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();

inline int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a > 0 ? kInt64Max : kInt64Min;
}

inline int64_t SaturatingMul(int64_t a, int64_t b) {
  int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a > 0) == (b > 0) ? kInt64Max : kInt64Min;
}

// Towards minus infinity; `b` > 0.
inline int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
inline int64_t FloorModulo(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }

}  // namespace quench
