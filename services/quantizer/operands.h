// Kernels and biases as operands of convolutions and matrix products, alone or in a fused group.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "common/ir/graph.h"
#include "services/quantizer/constants.h"

namespace quench::quantizer {

// Axis of output channels in the kernel, -1 if a scale for each channel cannot be expressed.
int ChannelAxis(const Node& root, const Tensor& kernel);
// For Conv and plain Gemm; nullopt for others, and for kernels without elements.
std::optional<KernelLayout> LayoutOf(const Node& root, const Tensor& kernel);
// The number of outputs of a root, and the output that an element of its kernel counts towards.
std::pair<int64_t, std::function<int64_t(int64_t)>> OutputsOf(const Node& root,
                                                              const Tensor& kernel);

// The input of `node` that only the root's operand reads; an input that pointwise operations of the
// group read too is given twice.
size_t OwnOperand(Node& node, int operand);
// Adds the bias that a root does not have, zeros for each output channel; returns its input's
// index.
size_t AddBias(Graph& graph, NodeId id, int64_t channels);

}  // namespace quench::quantizer
