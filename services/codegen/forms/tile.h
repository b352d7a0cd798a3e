// The micro-kernel: an output tile of pixels by vectors of channels in registers, while a reduction
// loop blocks -> kh -> kw -> channels streams packed weights. Convolutions, GEMM and GEMV are all
// this, with other strides; strides may be constants (then they become displacements) or run-time
// sizes. A form (form.h) says what is multiplied, and how it lies in memory.
#pragma once

#include <cstdint>
#include <functional>

#include "services/codegen/forms/vector_builder.h"

namespace quench::codegen {

// Strides are in bytes. A channel is what a form multiplies at once in a lane: a float, or a word of
// several narrower numbers.
struct MicroReduction {
  int lanes = 8;
  Int blocks, block_stride;
  Int kh, kh_stride;
  Int kw, kw_stride;
  int64_t channels = 1;  // per block and tap, all in the body of the innermost loop when few
  Int channel_stride;
  Int tail;        // channels after the blocks, for one tap; a constant or less than `channels`
  int unroll = 4;  // channels in one body
};

struct MicroTile {
  int y = 1, x = 1, vectors = 1;
  Ptr input;  // first channel of the first tap of the tile's first pixel
  Int y_stride, x_stride;
  Ptr weights;
  Ptr bias;      // `vectors` vectors that the accumulators start with; 0 when invalid
  Ptr prefetch;  // lines to fetch, one step of `prefetch_lines` per body; none when invalid
  int prefetch_lines = 1;
  // Whole tiles only (Form::whole_tiles): the number of pixels of a row of the tile, and how many of its
  // first ones an earlier tile has stored.
  Int pixels, stored;
  // Results leave registers before `store` sees them, a pixel at a time in a loop. Where `store`
  // needs many registers itself, the allocator would spill sums inside the reduction otherwise
  // (measured with GELU: 48 stack accesses beside 108 multiply-adds).
  bool results_in_memory = false;
};

// Takes each sum that no earlier tile has stored, once: f32, or the i32 of bytes.
using StoreSum = std::function<void(Int y, Int x, int vector, Vec value)>;

// Emits the products of a tile.
using TileCode = std::function<void(const MicroReduction& reduction, const MicroTile& tile,
                                    const StoreSum& store)>;

}  // namespace quench::codegen
