// Scales and zero points of a library's inputs and outputs, taken from the nodes next to them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/ir/graph.h"

namespace quench::codegen {

// real = (stored - zero_points[i]) * scales[i]: one pair, or one for each index of `axis`.
struct BoundaryQuantization {
  int axis = -1;  // -1: one pair
  std::vector<float> scales;
  std::vector<int32_t> zero_points;  // as many as scales
  friend bool operator==(const BoundaryQuantization&, const BoundaryQuantization&) = default;
};

// The quantization of an input is that of all DequantizeLinear that read it, if equal and if nothing else
// reads it; that of an output, of the QuantizeLinear that computes it. With one pair, nodes that only
// move elements may lie between. Nothing if scales are not constants, or are given for blocks.
std::optional<BoundaryQuantization> InputQuantization(const Graph& graph, ValueId input);
std::optional<BoundaryQuantization> OutputQuantization(const Graph& graph, ValueId output);

// The index of the input whose memory an output may use: a node that writes parts of the input
// (OpDef::updates) makes the output from it, and nothing else reads it.
std::optional<size_t> InputInPlaceOf(const Graph& graph, ValueId output);

}  // namespace quench::codegen
