// Conversions of the 16-bit floating-point formats to and from f32. Both directions are exact or
// round to nearest even (IEEE 754-2008 section 4.3.1); NaN stays NaN.
#pragma once

#include <cstdint>

namespace quench {

float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);

float Bfloat16ToFloat(uint16_t bits);
uint16_t FloatToBfloat16(float value);

}  // namespace quench
