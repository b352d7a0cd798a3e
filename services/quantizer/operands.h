// Kernels and biases as operands of convolutions and matrix products, alone or in a fused group.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "common/ir/graph.h"
#include "services/quantizer/constants.h"

namespace quench::quantizer {

// Axis of output channels in the kernel, -1 where a scale for each cannot be expressed.
int ChannelAxis(const Node& root, const Tensor& kernel);
// Of Conv and plain Gemm; nullopt for others, and for kernels without elements.
std::optional<KernelLayout> LayoutOf(const Node& root, const Tensor& kernel);
// How many outputs a root has, and which of them an element of its kernel counts towards.
std::pair<int64_t, std::function<int64_t(int64_t)>> OutputsOf(const Node& root,
                                                              const Tensor& kernel);

// Which input of `node` only the root's operand reads: one that pointwise operations of the group
// read too is given twice.
size_t OwnOperand(Node& node, int operand);
// Adds the bias that a root has not got, zeros for each output channel; which input it is.
size_t AddBias(Graph& graph, NodeId id, int64_t channels);

}  // namespace quench::quantizer
