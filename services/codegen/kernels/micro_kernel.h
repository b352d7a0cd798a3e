// The micro-kernel: an output tile of pixels by vectors of channels in registers, while a reduction
// loop blocks -> kh -> kw -> channels streams packed weights. Convolutions, GEMM and GEMV are all
// this, with other strides; strides may be constants (then they become displacements) or run-time
// sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "services/codegen/kernels/byte_root.h"
#include "services/codegen/kernels/picked_pairs.h"
#include "services/codegen/kernels/register_tile.h"
#include "services/codegen/kernels/shared_panels.h"
#include "services/codegen/kernels/stored_weights.h"
#include "services/codegen/kernels/vector_builder.h"

namespace quench::codegen {

// Strides are in bytes. A channel of byte inputs is a word of four bytes; sums and bias are then
// i32. A channel of pairs of bf16 or f16 is a word of two; sums are then f32, and those of f16
// begin in f16, for about kWordsOfHalves words at a time.
// Weights lie as [blocks][kh][kw][channels][tile vectors][lanes], then
// [tail][tile vectors][lanes].
struct MicroReduction {
  int lanes = 8;
  bool by_lane = false;             // Target::multiply_by_lane
  const ByteRoot* bytes = nullptr;  // products of bytes instead of floats
  std::optional<DataType> pairs;    // products of pairs of bf16 or f16
  DataType weight_type =
      DataType::kF32;  // float weights: f32, or f16 or bf16, widened as they are read
  // Weights are integers, scaled block by block: each block has scales of its own if it has
  // `stored->block` channels, else all have the same.
  const StoredWeights* stored = nullptr;
  // Float inputs only: panels with a width of their own instead of the tile's.
  SharedPanels shared;
  Int blocks, block_stride;
  Int kh, kh_stride;
  Int kw, kw_stride;
  int64_t channels = 1;  // per block and tap, all in the body of the innermost loop when few
  Int channel_stride;
  Int tail;        // channels after the blocks, for one tap; a constant or less than `channels`
  int unroll = 4;  // channels in one body
  // Byte inputs only: number of channels (0 to 3) left over after the last full word; invalid if
  // there are none. The weights hold a zero-padded word for them.
  Int rest;
  // Picked bytes only: layout of a panel's entries (picked_pairs.h).
  std::optional<PickedPanels> picked;
  // Byte inputs only: words that are multiplied a second time, as offsets from MicroTile::input.
  // The weights hold a word for each after all others.
  std::vector<Int> again;
};

// Number of words whose products are added in f16 before the sum is widened. At 64 the error is
// about 1.1e-3 of the sums' standard deviation; rounding the result alone costs 2e-4, adding
// thousands of products in f16 1e-2. (32 words take 8 % more time on Emerald Rapids, 128 words 5 %
// less.)
constexpr int64_t kWordsOfHalves = 64;

struct MicroTile {
  int y = 1, x = 1, vectors = 1;
  Ptr input;  // first channel of the first tap of the tile's first pixel
  Int y_stride, x_stride;
  Ptr weights;
  Ptr bias;  // `vectors` vectors that the accumulators start with; 0 when invalid
  // Byte inputs with a zero point of each run only: `vectors` vectors more to start with, multiplied by the
  // i32 `zero`. Invalid if the zero point is a constant.
  Ptr factors;
  Vec zero;
  // Picked bytes only: picks of the panel's words, its entries, and the number of entries.
  Ptr picks, entries;
  Int entry_count;
  // Stored weights only: scales and zero points (0 when invalid), [blocks][vectors][lanes] f32. The
  // sums of a block are scaled, not each weight.
  Ptr scales, zeros;
  Ptr prefetch;  // lines to fetch, one step of `prefetch_lines` per body; none when invalid
  int prefetch_lines = 1;
  // Results leave registers before `store` sees them, a pixel at a time in a loop. Where `store`
  // needs many registers itself, the allocator would spill sums inside the reduction otherwise
  // (measured with GELU: 48 stack accesses beside 108 multiply-adds).
  bool results_in_memory = false;
};

// The type of both operands if the target multiplies pairs of them, a lane of 32 bits each.
std::optional<DataType> PairsOf(const KernelRequest& request, DataType x, DataType w);

// Calls store(y, x, vector, value) for each accumulator once.
void EmitMicroTile(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
                   const std::function<void(Int y, Int x, int vector, Vec value)>& store);

// Sets the pointers of the tile into a panel beside its weights; `pack` is PackPickedPairs'.
void PointToPicks(VectorBuilder& b, const PickedPanels& panels, Ptr pack, Int panel,
                  MicroTile& tile);

}  // namespace quench::codegen
