// Conversions of the four 8-bit floating-point formats of ONNX (OCP OFP8 E4M3FN and E5M2; the FNUZ
// variants of Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022) to and from
// f32.
#pragma once

#include <cstdint>

#include "common/base/dtype.h"

namespace quench {

// `type` is one of kF8E4M3FN, kF8E4M3FNUZ, kF8E5M2, kF8E5M2FNUZ. Exact.
float Float8ToFloat(DataType type, uint8_t bits);

// Rounds to nearest even. Overflow becomes infinity in E5M2 and NaN in the formats without
// infinities; saturation is the caller's choice, by clamping first.
uint8_t FloatToFloat8(DataType type, float value);

// Largest finite value.
float Float8Max(DataType type);

}  // namespace quench
