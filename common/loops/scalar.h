// The meaning of every scalar operation of loops IR, as plain C++ on one element. The builder's
// constant folding and the interpreter both use these, so they cannot disagree. No operation has
// undefined behaviour.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "common/base/dtype.h"

namespace quench::loops::scalar {

template <typename T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T>;
template <typename T>
inline constexpr bool kIsBool = std::is_same_v<T, bool>;

// Unsigned type of the same width, in which wrapping arithmetic is defined. Types narrower than int
// are computed in uint32_t, because they would promote to signed int.
template <typename T>
using Wrap = std::conditional_t<(sizeof(T) <= 4), uint32_t, uint64_t>;

template <typename T>
T Add(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a + b;
  else
    return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b));
}

template <typename T>
T Sub(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a - b;
  else
    return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b));
}

template <typename T>
T Mul(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a * b;
  else
    return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b));
}

template <typename T>
T Neg(T a) {
  if constexpr (kIsFloat<T>)
    return -a;
  else
    return static_cast<T>(Wrap<T>{0} - static_cast<Wrap<T>>(a));
}

template <typename T>
T Abs(T a) {
  if constexpr (kIsFloat<T>)
    return std::fabs(a);
  else if constexpr (std::is_signed_v<T>)
    return a < 0 ? Neg(a) : a;
  else
    return a;
}

template <typename T>
T Div(T a, T b) {
  if constexpr (kIsFloat<T>) {
    return a / b;
  } else {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return Neg(a);
    }
    return static_cast<T>(a / b);
  }
}

// Remainder with the sign of `a` (C's % and fmod).
template <typename T>
T Rem(T a, T b) {
  if constexpr (kIsFloat<T>) {
    return std::fmod(a, b);
  } else {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
}

template <typename T>
T FloorDiv(T a, T b) {
  if constexpr (kIsFloat<T>) {
    return std::floor(a / b);
  } else {
    const T quotient = Div(a, b);
    if constexpr (std::is_signed_v<T>) {
      if (b != 0 && Rem(a, b) != 0 && (a < 0) != (b < 0)) return static_cast<T>(quotient - 1);
    }
    return quotient;
  }
}

// Remainder with the sign of `b` (Python's %).
template <typename T>
T FloorMod(T a, T b) {
  const T rem = Rem(a, b);
  if constexpr (std::is_signed_v<T> || kIsFloat<T>) {
    if (rem != 0 && (rem < 0) != (b < 0)) return static_cast<T>(rem + b);
  }
  return rem;
}

template <typename T>
T Min(T a, T b) {
  if constexpr (kIsFloat<T>) {
    return (a < b || std::isnan(a)) ? a : b;
  } else {
    return a < b ? a : b;
  }
}

template <typename T>
T Max(T a, T b) {
  if constexpr (kIsFloat<T>) {
    return (a > b || std::isnan(a)) ? a : b;
  } else {
    return a > b ? a : b;
  }
}

// Integers: by squaring, wrapping; a negative exponent gives the truncated reciprocal.
template <typename T>
T Pow(T a, T b) {
  if constexpr (kIsFloat<T>) {
    return std::pow(a, b);
  } else {
    if constexpr (std::is_signed_v<T>) {
      if (b < 0) {
        if (a == 1) return 1;
        if (a == -1) return (b & 1) != 0 ? T{-1} : T{1};
        return 0;
      }
    }
    T result = 1;
    for (T base = a; b != 0; b = static_cast<T>(b >> 1)) {
      if ((b & 1) != 0) result = Mul(result, base);
      base = Mul(base, base);
    }
    return result;
  }
}

template <typename T>
T Shl(T a, T b) {
  constexpr int kBits = static_cast<int>(sizeof(T) * 8);
  if (b < 0 || static_cast<uint64_t>(b) >= kBits) return 0;
  return static_cast<T>(static_cast<Wrap<T>>(a) << static_cast<int>(b));
}

template <typename T>
T Shr(T a, T b) {
  constexpr int kBits = static_cast<int>(sizeof(T) * 8);
  if (b < 0 || static_cast<uint64_t>(b) >= kBits) return a < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(a >> static_cast<int>(b));
}

// Conversion between arithmetic types: float to integer saturates and NaN gives 0; integers wrap;
// to bool: != 0.
template <typename To, typename From>
To Convert(From value) {
  if constexpr (kIsBool<To>) {
    return value != From{0};
  } else if constexpr (kIsFloat<From> && !kIsFloat<To>) {
    if (std::isnan(value)) return 0;
    // 2^digits is exact in From, and every From below it fits in To after truncation.
    const From limit = std::ldexp(From{1}, std::numeric_limits<To>::digits);
    if (value >= limit) return std::numeric_limits<To>::max();
    if constexpr (std::is_signed_v<To>) {
      if (value < -limit) return std::numeric_limits<To>::min();
    } else {
      if (value <= From{-1}) return 0;
    }
    return static_cast<To>(value);
  } else if constexpr (kIsFloat<From> && kIsFloat<To>) {
    return static_cast<To>(value);  // overflow to infinity is IEEE behaviour, not UB (IEC 559)
  } else {
    return static_cast<To>(value);
  }
}

// Calls `f(T{})` with the C++ type of an integer type of at least 8 bits or of bool.
template <typename F>
auto VisitInteger(DataType type, F&& f) {
  switch (type) {
    case DataType::kI8:
      return f(int8_t{});
    case DataType::kI16:
      return f(int16_t{});
    case DataType::kI32:
      return f(int32_t{});
    case DataType::kU8:
      return f(uint8_t{});
    case DataType::kU16:
      return f(uint16_t{});
    case DataType::kU32:
      return f(uint32_t{});
    case DataType::kU64:
      return f(uint64_t{});
    case DataType::kBool:
      return f(bool{});
    default:
      return f(int64_t{});
  }
}

}  // namespace quench::loops::scalar
