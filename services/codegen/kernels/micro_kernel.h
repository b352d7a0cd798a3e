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

// Strides are in bytes. Of bytes a channel is a word of four: sums are i32, and so is the bias. Of
// pairs of bf16 or f16 it is a word of two, and sums are f32; those of f16 begin in f16, for
// about kWordsOfHalves words at a time.
// Weights lie as [blocks][kh][kw][channels][tile vectors][lanes], then
// [tail][tile vectors][lanes].
struct MicroReduction {
  int lanes = 8;
  bool by_lane = false;             // Target::multiply_by_lane
  const ByteRoot* bytes = nullptr;  // products of bytes instead of floats
  std::optional<DataType> pairs;    // products of pairs of bf16 or f16
  DataType weight_type =
      DataType::kF32;  // of floats: f32, or f16 or bf16, widened as they are read
  // Weights are integers, scaled block by block: each block has scales of its own if it has
  // `stored->block` channels, else all have the same.
  const StoredWeights* stored = nullptr;
  // Of floats: panels of their own width in place of the tiles'.
  SharedPanels shared;
  Int blocks, block_stride;
  Int kh, kh_stride;
  Int kw, kw_stride;
  int64_t channels = 1;  // per block and tap, all in the body of the innermost loop when few
  Int channel_stride;
  Int tail;        // channels after the blocks, for one tap; a constant or less than `channels`
  int unroll = 4;  // channels in one body
  // Of bytes: how many follow the last word and fill none, 0 to 3; none when invalid. Weights have a
  // word for them.
  Int rest;
  // Of bytes that are picked: of a panel's entries (picked_pairs.h).
  std::optional<PickedPanels> picked;
  // Of bytes: words that are multiplied once more, from MicroTile::input. Weights have a word for each
  // behind all others.
  std::vector<Int> again;
};

// Sums of so many products round to f16 one after the other: an error of about 1.1e-3 of their standard
// deviation, where the result's rounding is one of 2e-4 and all of a sum of thousands would be one of 1e-2.
// (Half as many cost 8 % more of the time on Emerald Rapids, twice as many save 5 %.)
constexpr int64_t kWordsOfHalves = 64;

struct MicroTile {
  int y = 1, x = 1, vectors = 1;
  Ptr input;  // first channel of the first tap of the tile's first pixel
  Int y_stride, x_stride;
  Ptr weights;
  Ptr bias;     // `vectors` vectors that the accumulators start with; 0 when invalid
  Ptr factors;  // of bytes: with `vectors` more that `zero`, an i32, is multiplied by; or invalid
  Vec zero;
  // Of bytes that are picked: those of the panel's words, its entries, and how many these are.
  Ptr picks, entries;
  Int entry_count;
  // Of stored weights: [blocks][vectors][lanes] f32, the scales and zero points (0 when invalid). The
  // sums of a block are scaled, not each weight.
  Ptr scales, zeros;
  Ptr prefetch;  // lines to fetch, one step of `prefetch_lines` per body; none when invalid
  int prefetch_lines = 1;
  // Results leave registers before `store` sees them, a pixel at a time in a loop. Where `store`
  // needs many registers itself, the allocator would spill sums inside the reduction otherwise
  // (measured with GELU: 48 stack accesses beside 108 multiply-adds).
  bool results_in_memory = false;
};

// The type of both operands where the target multiplies pairs of them, a lane of 32 bits each.
std::optional<DataType> PairsOf(const KernelRequest& request, DataType x, DataType w);

// Calls store(y, x, vector, value) for each accumulator once.
void EmitMicroTile(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
                   const std::function<void(Int y, Int x, int vector, Vec value)>& store);

// Sets what the tile reads of a panel beside its weights; `pack` is PackPickedPairs'.
void PointToPicks(VectorBuilder& b, const PickedPanels& panels, Ptr pack, Int panel,
                  MicroTile& tile);

}  // namespace quench::codegen
