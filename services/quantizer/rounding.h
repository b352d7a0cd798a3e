// The neighbour that each weight is rounded to, if it is not the nearest: found by AdaptRounding,
// used by quantization.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/quantizer/options.h"

namespace quench::quantizer {

// Warning where a rounding that was adapted to random samples is used.
inline constexpr char kRandomRounding[] =
    "rounding was adapted to random inputs: on real data layers see other values";

// Rounding of one constant, for one way of taking scales from it.
struct AdaptedKernel {
  std::string constant;             // its name
  int axis = -1;                    // as WeightScheme.axis
  std::string node;                 // the first that reads it
  std::string otherwise;            // a bit for each element, lowest first: not to the nearest
  int64_t elements = 0, moved = 0;  // bits, and those that are set
  // Power of the layer's output signal over that of the error that rounding the weights adds,
  // activations in float, in dB, nearest and adapted. Infinite where weights are integers already.
  double nearest_db = 0, adapted_db = 0;
};

struct Rounding {
  bool random = false;      // the samples were: on real data layers see other values
  std::string fingerprint;  // of the float module
  std::string scheme;       // SchemeWords of the options
  int64_t samples = 0;
  std::vector<AdaptedKernel> kernels;
};

// FAILED_PRECONDITION unless `rounding` is of this module and of such options.
absl::Status CheckRounding(const Rounding& rounding, const Graph& graph,
                           const std::string& fingerprint, const QuantizeOptions& options);
// AdaptedKernel.otherwise of the constant; null where rounding is to the nearest.
const std::string* OtherwiseOf(const QuantizeOptions& options, const std::string& constant,
                               int axis);

// The layers whose noise is lowered most, `rows` of them, and a line for all.
std::string ToTable(const Rounding& rounding, size_t rows = 10);

}  // namespace quench::quantizer
