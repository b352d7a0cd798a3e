#include "services/quantizer/scheme.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/status.h"

namespace quench::quantizer {

Affine AffineFor(const Range& range, const Scheme& scheme) {
  const int bits = DataTypeBits(scheme.dtype);
  QUENCH_CHECK((bits == 8 || bits == 4) && IsInteger(scheme.dtype));
  Affine affine;
  affine.least = IsSigned(scheme.dtype) ? -(1 << (bits - 1)) : 0;
  affine.greatest = affine.least + (1 << bits) - 1;
  const int32_t half = (1 << (bits - 1)) - 1;
  const double low = std::min(range.low, 0.0), high = std::max(range.high, 0.0);
  double scale = scheme.symmetric ? std::max(-low, high) / half
                                  : (high - low) / (affine.greatest - affine.least);
  if (scheme.power_of_two && scale > 0) scale = std::exp2(std::ceil(std::log2(scale)));
  if (high == low) scale = 1;
  scale = std::clamp(scale, double{std::numeric_limits<float>::min()},
                     double{std::numeric_limits<float>::max()});
  affine.scale = static_cast<float>(scale);
  if (scheme.symmetric) {
    affine.zero_point = affine.greatest - half;
  } else {
    const double zero = std::nearbyint(affine.least - low / affine.scale);
    affine.zero_point =
        static_cast<int32_t>(std::clamp(zero, double(affine.least), double(affine.greatest)));
  }
  return affine;
}

int32_t Quantized(double real, const Affine& affine) {
  // The division in f32, as QuantizeLinear divides.
  const float scaled = static_cast<float>(real) / affine.scale;
  const double moved = std::nearbyint(double{scaled}) + affine.zero_point;
  return static_cast<int32_t>(std::clamp(moved, double(affine.least), double(affine.greatest)));
}

}  // namespace quench::quantizer
