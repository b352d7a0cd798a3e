// Cross-layer equalization: channels of uneven ranges are scaled to even ones, and the next layer
// scales them back. The function stays the same; one scale per tensor then costs less accuracy.
#pragma once

#include <absl/status/statusor.h>

#include "common/base/context.h"
#include "common/ir/graph.h"

namespace quench::quantizer {

struct Equalized {
  Graph graph;
  int pairs = 0;       // of layers that were equalized with one another
  double spread = 1;   // largest factor between the ranges of two channels of a kernel, before
  double remains = 1;  // and after
};

// For layers a -> activation -> b, where nothing else reads the values between: channel i of a's
// kernel is divided by s_i and channel i of b's multiplied by it,
//   s_i = sqrt(r_a,i / r_b,i)      r: max |w| of the channel
// until nothing changes (Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and
// Bias Correction", section 4.1). Scaling passes through Relu, LeakyRelu, PRelu and pooling;
// through Clip with bounds of its own for each channel (ReLU6); and through x * Sigmoid(x),
// HardSwish and Swish, whose gates are given s_i * x. Convolutions of any group, with constant f32
// kernels; `graph` is at stage `canonical`.
absl::StatusOr<Equalized> Equalize(Graph graph, const StepContext& context = {});

}  // namespace quench::quantizer
