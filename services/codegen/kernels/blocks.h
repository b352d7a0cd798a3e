// Blocks of channels in the layouts of activations.
#pragma once

#include <cstdint>
#include <vector>

#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

// Channels of a block that fill a row of a matrix register; 0 where the target has no products of matrices of this
// type.
int64_t MatrixBlock(const Target& target, DataType type);

// Channels of the blocks in which images of this type may lie: as many as a vector register has floats, and
// MatrixBlock's.
std::vector<int64_t> ActivationBlocks(const Target& target, DataType type);

// The NCHW<block>c layout of activations.
Layout BlockedLayout(int64_t block);
// NHWC, of activations of rank 4.
Layout ChannelsLast();

}  // namespace quench::codegen
