#include "common/base/float8.h"

#include <array>
#include <cmath>
#include <limits>

#include "common/base/status.h"

namespace quench {
namespace {

struct Format {
  int mantissa_bits;
  int bias;
  uint8_t max_code;    // largest finite magnitude
  uint8_t overflow;    // magnitude code of overflow: infinity or NaN
  bool unsigned_zero;  // FNUZ: 0x80 is the only NaN and there is no negative zero
};

const Format& FormatOf(DataType type) {
  static constexpr Format kE4M3FN = {3, 7, 0x7e, 0x7f, false};
  static constexpr Format kE4M3FNUZ = {3, 8, 0x7f, 0x80, true};
  static constexpr Format kE5M2 = {2, 15, 0x7b, 0x7c, false};
  static constexpr Format kE5M2FNUZ = {2, 16, 0x7f, 0x80, true};
  switch (type) {
    case DataType::kF8E4M3FN:
      return kE4M3FN;
    case DataType::kF8E4M3FNUZ:
      return kE4M3FNUZ;
    case DataType::kF8E5M2:
      return kE5M2;
    default:
      break;
  }
  QUENCH_CHECK(type == DataType::kF8E5M2FNUZ);
  return kE5M2FNUZ;
}

float Decode(DataType type, uint8_t bits) {
  const Format& f = FormatOf(type);
  const int magnitude = bits & 0x7f;
  const bool negative = (bits & 0x80) != 0;
  if (f.unsigned_zero && bits == 0x80) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude > f.max_code) {
    if (f.overflow != magnitude || type != DataType::kF8E5M2)
      return std::numeric_limits<float>::quiet_NaN();
    return negative ? -std::numeric_limits<float>::infinity()
                    : std::numeric_limits<float>::infinity();
  }
  const int exponent = magnitude >> f.mantissa_bits;
  const int fraction = magnitude & ((1 << f.mantissa_bits) - 1);
  const int significand = exponent == 0 ? fraction : fraction | (1 << f.mantissa_bits);
  const int scale = (exponent == 0 ? 1 : exponent) - f.bias - f.mantissa_bits;
  const float value = std::ldexp(static_cast<float>(significand), scale);
  return negative ? -value : value;
}

std::array<float, 256> Table(DataType type) {
  std::array<float, 256> table{};
  for (size_t i = 0; i < table.size(); ++i) table[i] = Decode(type, static_cast<uint8_t>(i));
  return table;
}

}  // namespace

float Float8ToFloat(DataType type, uint8_t bits) {
  static const std::array<std::array<float, 256>, 4> kTables = {
      Table(DataType::kF8E4M3FN), Table(DataType::kF8E4M3FNUZ), Table(DataType::kF8E5M2),
      Table(DataType::kF8E5M2FNUZ)};
  const size_t index = static_cast<size_t>(type) - static_cast<size_t>(DataType::kF8E4M3FN);
  QUENCH_CHECK(index < kTables.size());
  return kTables[index][bits];
}

uint8_t FloatToFloat8(DataType type, float value) {
  const Format& f = FormatOf(type);
  if (std::isnan(value)) return f.unsigned_zero ? 0x80 : 0x7f;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const auto overflow = [&] { return static_cast<uint8_t>(f.overflow | sign); };
  const float magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return overflow();
  if (magnitude == 0) return f.unsigned_zero ? 0 : sign;
  // In units of the last place of its binade, or of the subnormal range; the scaling is exact.
  int exponent = std::max(std::ilogb(magnitude), 1 - f.bias);
  int significand =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent)));
  if (significand == 2 << f.mantissa_bits) {
    significand >>= 1;
    ++exponent;
  }
  const bool subnormal = significand < 1 << f.mantissa_bits;
  const int field = subnormal ? 0 : exponent + f.bias;
  const int code = (field << f.mantissa_bits) | (significand & ((1 << f.mantissa_bits) - 1));
  if (code > f.max_code) return overflow();
  if (code == 0 && f.unsigned_zero) return 0;
  return static_cast<uint8_t>(static_cast<uint8_t>(code) | sign);
}

float Float8Max(DataType type) { return Float8ToFloat(type, FormatOf(type).max_code); }

}  // namespace quench
