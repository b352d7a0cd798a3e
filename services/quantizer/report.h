// The result of quantization: a module, and a report on its layers.
#pragma once

#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::quantizer {

struct LayerChoice {
  std::string node, op;
  bool quantized = false;
  std::string reason;  // why it stays in float
};

struct QuantizeReport {
  std::vector<LayerChoice> layers;  // every convolution and matrix product, in order
  int static_values = 0;            // activations with fixed ranges
  int dynamic_values = 0;           // activations with ranges of each run
  int weights = 0;                  // constants that are integers now
  int corrected_biases = 0;
  int adapted_kernels = 0;  // constants among `weights` whose rounding was adapted
  std::vector<std::string> warnings;
};

struct QuantizedModule {
  Graph graph;  // stage `quantized`
  QuantizeReport report;
};

}  // namespace quench::quantizer
