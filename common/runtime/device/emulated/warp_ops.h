// The instructions that the 32 threads of a warp do together, on the registers of all of them.
#pragma once

#include <array>
#include <cstdint>

namespace quench::emulated {

constexpr uint32_t kWarp = 32;

enum class WarpOp : uint8_t { kShuffleXor, kShuffle, kLoadMatrices, kMma };

// "shuffle_xor": as quench_emulated_ops calls it.
const char* WarpOpName(WarpOp op);

// Arguments of one lane.
struct WarpCall {
  WarpOp op = WarpOp::kShuffle;
  uint32_t kind = 0;           // QUENCH_MMA_* of kMma; whether kLoadMatrices transposes
  uint32_t value = 0;          // shuffles: what the lane gives,
  uint32_t lane = 0;           // and the mask or the lane that it asks for, of which 5 bits count
  const void* row = nullptr;   // kLoadMatrices: the row's 16 bytes
  uint32_t* result = nullptr;  // 1 word of shuffles, 4 otherwise; those of kMma are added to
  const uint32_t *a = nullptr, *b = nullptr;  // 4 and 2 words of kMma
};

// All with the same op and kind, at most QUENCH_MMA_U8.
//
// kMma: products are exact. f32 sums: products of an instruction are added in f64, in order of k,
// then the sum that was there, and the result is rounded to f32 once. (GPUs add with fewer bits, in
// an order of their own.) Integer sums wrap.
void PerformWarpOp(const std::array<WarpCall*, kWarp>& lanes);

}  // namespace quench::emulated
