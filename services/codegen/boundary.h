// Scales and zero points of a library's inputs and outputs, from the nodes beside them.
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
  std::vector<int32_t> zero_points;  // as many
  friend bool operator==(const BoundaryQuantization&, const BoundaryQuantization&) = default;
};

// The input's quantization: common to all DequantizeLinear that read it, if nothing else reads it.
// The output's: that of the QuantizeLinear that computes it. With one pair, nodes that only move
// elements may lie between. Nothing where scales are not constants, or are given for blocks.
std::optional<BoundaryQuantization> InputQuantization(const Graph& graph, ValueId input);
std::optional<BoundaryQuantization> OutputQuantization(const Graph& graph, ValueId output);

// The input, as an index, whose memory an output may have: it is updated to the output by a node that
// writes parts of it (OpDef::updates), and nothing else reads it.
std::optional<size_t> InputInPlaceOf(const Graph& graph, ValueId output);

}  // namespace quench::codegen
