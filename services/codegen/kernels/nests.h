// Code shared by the reference nest and the scheduled nest: a node as one loops function.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/loops/loops.h"
#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

// Whether LowerToNest gives a function: nodes that lower, and groups of pointwise nodes.
bool LowersToNest(const KernelRequest& request);
// Whether the loops write parts of output 0 alone, and input 0, which is not a constant, is the rest of it.
bool UpdatesFirstInput(const KernelRequest& request);
// Buffers: the node's present inputs, then its present outputs. A group of pointwise nodes is one
// nest over the elements of its result, without memory for what is between.
absl::StatusOr<loops::Function> LowerToNest(const KernelRequest& request);
// The candidate's layouts of those buffers.
std::vector<Layout> NestLayouts(const KernelRequest& request, const Candidate& candidate);

// As Candidate.slow, of integers that are left to a nest.
std::string WhyNestIsSlow(const Node& node);

// Predicted microseconds at typical sizes.
struct NestCosts {
  double scalar = 0;
  double vectorised = 0;
};
NestCosts NestCost(const KernelRequest& request);

}  // namespace quench::codegen
