// Splitting: convolutions whose channels have very uneven ranges become two each, so that every part
// has a range of its own.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"

namespace quench::quantizer {

struct SplitLayer {
  std::string node;                        // the convolution that gives the channels
  std::vector<int64_t> channels;           // of each part
  double bits_before = 0, bits_after = 0;  // lost per channel, see SplitTensors
};

struct SplitModule {
  Graph graph;  // metadata `is_split_tensors` is "true" if any layer was split
  std::vector<SplitLayer> layers;
};

struct SplitOptions {
  int parts = 2;          // of a convolution, at most: 2 to 8
  double least_gain = 1;  // bits; a layer that gains less stays whole
};

// Channel c of range r_c, quantized with others of which the largest has range R, loses
// log2(R / r_c) bits of its resolution. A convolution of group 1 whose channels lose many, between
// itself and the convolutions of group 1 that alone read them, is cut where that gains most: its
// output channels in two (at most `parts`), in the order of their ranges; each part goes through the
// activations, pooling and depthwise convolutions between by itself, and each reader becomes one
// convolution per part, whose results are added. Ranges are those of kernels (max |w|), multiplied
// along depthwise convolutions. Layers are looked at in order, and one that reads split channels is
// not split itself. The function stays, up to the rounding of those sums; so does nearly
// the work.
//
// `graph` is at stage `canonical`, after the passes. FAILED_PRECONDITION: it was split before.
absl::StatusOr<SplitModule> SplitTensors(Graph graph, const SplitOptions& options = {},
                                         const StepContext& context = {});

}  // namespace quench::quantizer
