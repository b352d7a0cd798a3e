// Constant weights of products of bytes, minus a zero point that is not where their type is centred.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/fields.h"
#include "common/ir/tensor.h"

namespace quench::ops {

constexpr int64_t kWordChannels = 4;  // input channels that kernels multiply at once

// The zero point of all channels; `zero` may be null (0). Nothing where they differ.
std::optional<int64_t> UniformZero(const Tensor* zero);

// The part of a centred weight w, -254 <= w <= 254, that is multiplied with the others, from -127
// to 127. The remainder w - NearPart(w) is in that range too.
int64_t NearPart(int64_t w);

// Four neighbouring input channels of one tap.
struct WeightWord {
  int64_t tap = 0, word = 0;
  friend bool operator==(const WeightWord&, const WeightWord&) = default;
  QUENCH_FIELDS(tap, word)
};

// The words of a convolution's weights, [channels][input channels][taps..] of i8 or u8, where some
// weight minus `zero` has a part that is left: kernels multiply these twice. Nothing where that is
// impossible or slower than floats.
//   the usual case: asymmetric ranges are as wide as their farthest weight, so few others are far
std::optional<std::vector<WeightWord>> WordsOfTwoParts(const Tensor& weights, int64_t zero);

}  // namespace quench::ops
