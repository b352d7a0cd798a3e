// Integers for real numbers: real = (integer - zero_point) * scale.
#pragma once

#include <cstdint>

#include "common/base/dtype.h"

namespace quench::quantizer {

// Real numbers low <= high; numbers outside are clipped to the ends.
struct Range {
  double low = 0, high = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

struct Scheme {
  DataType dtype = DataType::kI8;  // i8, u8, i4 or u4
  bool symmetric = false;          // zero in the middle of the integers
  bool power_of_two = false;       // scales: a shift instead of a product on small machines
};

struct Affine {
  float scale = 1;  // normal, positive
  int32_t zero_point = 0;
  int32_t least = -128, greatest = 127;  // integers in use
};

// The map under which all of `range` and zero itself are inside. Asymmetric, after Jacob et al.
// 2018 ("Quantization and Training of Neural Networks", section 2.1), zero being an integer:
//   low' = min(low, 0), high' = max(high, 0)
//   scale = (high' - low') / (greatest - least)    zero_point = rne(least - low' / scale)
// Symmetric: scale = max(|low|, |high|) / 127, zero_point 0 (i8) or 128 (u8). A power of two is
// rounded up, so that nothing is clipped by it. A range of nothing but zero has scale 1.
Affine AffineFor(const Range& range, const Scheme& scheme);

// rne(real / scale) + zero_point, clamped to the integers in use: as QuantizeLinear does it.
int32_t Quantized(double real, const Affine& affine);
inline double Dequantized(int32_t integer, const Affine& affine) {
  return static_cast<double>(integer - affine.zero_point) * static_cast<double>(affine.scale);
}

}  // namespace quench::quantizer
