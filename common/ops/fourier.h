// Code shared by DFT and STFT.
#pragma once

#include <functional>

#include "common/ops/nest.h"

namespace quench::ops {

// cos and sin of 2 pi i / size for i in [0, size), computed in f64 and kept in the compute type of
// the signal.
class Twiddles {
 public:
  Twiddles(LowerContext& ctx, E size, DataType type);
  // Place of the angle k * n turns / size.
  E Place(E k, E n) const;
  E Cos(E place) const { return cosine_.At({place}); }
  E Sin(E place) const { return sine_.At({place}); }

 private:
  Builder& b_;
  E size_;
  B cosine_, sine_;
};

// Real and imaginary part of a signal at one place; an invalid imaginary part is 0.
struct Complex {
  E re, im;
};

// Sum over n < count of signal(n) * e^(-+ 2 pi j k n / size), minus sign unless `inverse`.
Complex FourierSum(Builder& b, const Twiddles& twiddles, E k, E count, bool inverse, DataType type,
                   const std::function<Complex(E)>& signal);

}  // namespace quench::ops
