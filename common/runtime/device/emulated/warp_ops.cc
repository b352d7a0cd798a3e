#include "common/runtime/device/emulated/warp_ops.h"

#include <bit>
#include <cstring>

#include "common/runtime/device/emulated.h"

namespace quench::emulated {
namespace {

using Lanes = std::array<WarpCall*, kWarp>;

constexpr uint32_t kRows = 16, kColumns = 8;
constexpr uint32_t kMostDepth = 32;

double FromF16(uint32_t bits) {
  const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
  constexpr uint32_t kInfinity = 0xFF, kBiases = 127 - 15;
  if (exponent == 0) {
    const double value = mantissa * 0x1p-24;
    return (bits & 0x8000) != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? kInfinity : exponent + kBiases;
  return std::bit_cast<float>((bits & 0x8000) << 16 | wide << 23 | mantissa << 13);
}

// How numbers of a kind lie in a 32-bit register.
struct Form {
  uint32_t in_register;  // numbers
  double (*number)(uint32_t bits);
};

double F16(uint32_t bits) { return FromF16(bits & 0xFFFF); }
double Bf16(uint32_t bits) { return std::bit_cast<float>(bits << 16); }
double Tf32(uint32_t bits) { return std::bit_cast<float>(bits & ~uint32_t{0x1FFF}); }
double I8(uint32_t bits) { return static_cast<int8_t>(bits); }
double U8(uint32_t bits) { return static_cast<uint8_t>(bits); }

// Factors a and b of each QUENCH_MMA_*.
constexpr Form kForms[][2] = {{{2, F16}, {2, F16}},
                              {{2, Bf16}, {2, Bf16}},
                              {{1, Tf32}, {1, Tf32}},
                              {{4, I8}, {4, I8}},
                              {{4, U8}, {4, I8}}};

// Factors of one product, as matrices.
struct Factors {
  uint32_t depth;
  double a[kRows][kMostDepth], b[kMostDepth][kColumns];
};

// Where PTX ISA has what, for n numbers in a register: lane 4 g + t has in its register r of a the
// numbers n t + 4 n (r / 2) ... of row g + 8 (r % 2), in register r of b those n t + 4 n r ... of
// column g.
void Spread(const Lanes& lanes, Factors* factors) {
  const auto& [a_form, b_form] = kForms[lanes[0]->kind];
  const uint32_t n = a_form.in_register, bits = 32 / n;
  factors->depth = 8 * n;
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    const uint32_t group = lane / 4, k = n * (lane % 4);
    for (uint32_t j = 0; j < n; ++j) {
      for (uint32_t r = 0; r < 4; ++r) {
        factors->a[group + 8 * (r % 2)][k + 4 * n * (r / 2) + j] =
            a_form.number(lanes[lane]->a[r] >> (bits * j));
      }
      for (uint32_t r = 0; r < 2; ++r) {
        factors->b[k + 4 * n * r + j][group] = b_form.number(lanes[lane]->b[r] >> (bits * j));
      }
    }
  }
}

void Mma(const Lanes& lanes) {
  static_assert(std::size(kForms) == QUENCH_MMA_U8 + 1);
  Factors factors;
  Spread(lanes, &factors);
  const bool integers = lanes[0]->kind >= QUENCH_MMA_I8;
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
      double sum = 0;
      for (uint32_t k = 0; k < factors.depth; ++k) sum += factors.a[row][k] * factors.b[k][column];
      uint32_t& result = lanes[lane]->result[r];
      if (integers) {
        result += static_cast<uint32_t>(static_cast<int32_t>(sum));
      } else {
        result = std::bit_cast<uint32_t>(static_cast<float>(sum + std::bit_cast<float>(result)));
      }
    }
  }
}

uint32_t Half(const void* row, uint32_t index) {
  uint16_t half;
  std::memcpy(&half, static_cast<const char*>(row) + 2 * index, 2);
  return half;
}

void LoadMatrices(const Lanes& lanes) {
  const bool transposed = lanes[0]->kind != 0;
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    const uint32_t line = lane / 4, pair = 2 * (lane % 4);
    for (uint32_t m = 0; m < 4; ++m) {
      const auto number = [&](uint32_t i) {
        return transposed ? Half(lanes[8 * m + i]->row, line) : Half(lanes[8 * m + line]->row, i);
      };
      lanes[lane]->result[m] = number(pair) | number(pair + 1) << 16;
    }
  }
}

}  // namespace

const char* WarpOpName(WarpOp op) {
  constexpr const char* kNames[] = {"shuffle_xor", "shuffle", "load_matrices", "mma"};
  return kNames[static_cast<size_t>(op)];
}

void PerformWarpOp(const Lanes& lanes) {
  switch (lanes[0]->op) {
    case WarpOp::kShuffleXor:
      for (uint32_t lane = 0; lane < kWarp; ++lane) {
        *lanes[lane]->result = lanes[lane ^ (lanes[lane]->lane % kWarp)]->value;
      }
      return;
    case WarpOp::kShuffle:
      for (const WarpCall* lane : lanes) *lane->result = lanes[lane->lane % kWarp]->value;
      return;
    case WarpOp::kLoadMatrices:
      LoadMatrices(lanes);
      return;
    case WarpOp::kMma:
      Mma(lanes);
      return;
  }
}

}  // namespace quench::emulated
