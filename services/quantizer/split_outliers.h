// Outlier channel splitting: channels whose weights are far larger than the others' are computed
// more than once and read with a part of those weights each, so that a kernel's range is no longer
// theirs.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"

namespace quench::quantizer {

struct OutlierLayer {
  std::string node;                  // the convolution that gives the channels
  int64_t channels = 0, copies = 0;  // there were, and were added
  double spared = 1;  // factor by which the largest weight of its readers shrank, at least
};

struct OutlierModule {
  Graph graph;
  std::vector<OutlierLayer> layers;
};

struct OutlierOptions {
  double share = 0.02;  // share of a convolution's channels to add, above 0 and at most 0.5
};

// A channel that is there m times is read with w / m each time (Zhao et al. 2019, arXiv 1901.09504,
// section 3: there halves of halves). Copies are added one after the other, each of the channel
// whose largest part of a weight, as a share of its kernel's largest weight, is the largest of all;
// in multiples of eight from 32 channels on, to keep vectors full. A convolution is left alone
// unless that makes the largest weights of all its readers at least a tenth smaller. It must be of
// group 1, and read only by convolutions of group 1, through activations, pooling and depthwise
// convolutions. The function stays, up to rounding; the work grows with the channels.
//
// `graph` is at stage `canonical`, after the passes.
absl::StatusOr<OutlierModule> SplitOutliers(Graph graph, const OutlierOptions& options = {},
                                            const StepContext& context = {});

}  // namespace quench::quantizer
