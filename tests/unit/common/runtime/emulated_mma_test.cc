// Products of matrices on the emulated device: operands come by cp.async and ldmatrix, sums are
// compared with plain loops.
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/unit/common/runtime/emulated_harness.h"

namespace quench::emulated_mma_test {
namespace {

using Thread = quench_emulated_thread;

// A 16 x K matrix times a K x 16 matrix, K in steps of one instruction. A row of a step is 32 bytes
// in all kinds: 16, 8 or 32 numbers.
constexpr uint32_t kSteps = 3, kRows = 16, kColumns = 16, kRowBytes = 32, kTile = 16 * kRowBytes;

// Lane l brings the 16 bytes at 16 l of both tiles of a step.
void CopyTiles(Thread* thread, uint32_t step, const char* a, const char* b) {
  char* const to = static_cast<char*>(thread->shared) + step % 2 * 2 * kTile + 16 * thread->thread;
  const uint32_t from = step * kTile + 16 * thread->thread;
  thread->ops->copy_async(thread, to, a + from, 16);
  thread->ops->copy_async(thread, to + kTile, b + from, 16);
  thread->ops->commit(thread);
}

// One warp. Tiles of a are 16 rows; those of b are 16 columns, or, transposed, 16 rows of 16
// numbers. Sums begin with what is there.
void Product(Thread* thread, void* const* arguments) {
  const auto kind = Argument<uint32_t>(arguments, 0), transposed = Argument<uint32_t>(arguments, 1);
  const auto* const a = Argument<const char*>(arguments, 2);
  const auto* const b = Argument<const char*>(arguments, 3);
  auto* const c = Argument<uint32_t*>(arguments, 4);
  const auto* const ops = thread->ops;
  const uint32_t lane = thread->thread, matrix = lane / 8, row = lane % 8;
  uint32_t sums[2][4];
  const auto element = [&](uint32_t tile, uint32_t i) {
    return c + (lane / 4 + 8 * (i / 2)) * kColumns + 8 * tile + 2 * (lane % 4) + i % 2;
  };
  for (uint32_t i = 0; i < 8; ++i) sums[i / 4][i % 4] = Load(thread, element(i / 4, i % 4));
  CopyTiles(thread, 0, a, b);
  for (uint32_t step = 0; step < kSteps; ++step) {
    if (step + 1 < kSteps) CopyTiles(thread, step + 1, a, b);
    ops->wait(thread, step + 1 < kSteps ? 1 : 0);
    ops->barrier(thread);
    const char* const tile = static_cast<char*>(thread->shared) + step % 2 * 2 * kTile;
    uint32_t a_words[4], b_words[4];
    const uint32_t low = matrix % 2, high = matrix / 2;
    ops->load_matrices(thread, tile + (8 * low + row) * kRowBytes + 16 * high, 0, a_words);
    const uint32_t line = transposed != 0 ? low : high, half = transposed != 0 ? high : low;
    ops->load_matrices(thread, tile + kTile + (8 * line + row) * kRowBytes + 16 * half, transposed,
                       b_words);
    for (uint32_t i = 0; i < 2; ++i) ops->mma(thread, kind, sums[i], a_words, b_words + 2 * i);
    ops->barrier(thread);
  }
  for (uint32_t i = 0; i < 8; ++i) Store(thread, element(i / 4, i % 4), sums[i / 4][i % 4]);
}

uint32_t HalfBits(float value) {  // of a number that f16 has, no smaller than its normal ones
  if (value == 0) return 0;
  int exponent;
  const float fraction = std::frexp(std::fabs(value), &exponent);  // 0.5 to 1
  const auto mantissa = static_cast<uint32_t>(fraction * 2048) - 1024;
  return (value < 0 ? 0x8000u : 0u) | static_cast<uint32_t>(exponent + 14) << 10 | mantissa;
}

// How numbers of a kind are stored, and a random one. `bits` may have more than its value shows.
struct Number {
  uint32_t bits;
  double value;
};
Number Random(uint32_t kind, bool first, std::mt19937* random) {
  const uint32_t word = (*random)();
  const float small = static_cast<float>(static_cast<int32_t>(word % 4001) - 2000) / 1024;
  switch (kind) {
    case QUENCH_MMA_F16:
      return {HalfBits(small), small};
    case QUENCH_MMA_BF16: {
      const uint32_t bits = std::bit_cast<uint32_t>(small) >> 16;
      return {bits, std::bit_cast<float>(bits << 16)};
    }
    case QUENCH_MMA_TF32: {
      const uint32_t bits = std::bit_cast<uint32_t>(small * 1.2345678f) | (word >> 19);
      return {bits, std::bit_cast<float>(bits >> 13 << 13)};
    }
    default:
      return kind == QUENCH_MMA_U8 && first
                 ? Number{word & 255, static_cast<double>(word & 255)}
                 : Number{word & 255, static_cast<double>(static_cast<int8_t>(word & 255))};
  }
}

struct Case {
  uint32_t kind, number_bytes;
  bool transposed;
};

class EmulatedMma : public EmulatedDevice {
 protected:
  // A matrix of 16 rows in tiles, each of which has `depth` numbers of a row.
  struct Matrix {
    std::vector<char> bytes = std::vector<char>(kSteps * kTile);
    std::vector<double> values;  // [16][kSteps * depth]
  };
  Matrix RandomMatrix(const Case& c, bool first) {
    const uint32_t depth = kRowBytes / c.number_bytes, k_count = kSteps * depth;
    Matrix matrix;
    matrix.values.resize(16 * k_count);
    for (uint32_t line = 0; line < 16; ++line) {
      for (uint32_t k = 0; k < k_count; ++k) {
        const Number number = Random(c.kind, first, &random_);
        matrix.values[line * k_count + k] = number.value;
        const uint32_t across = !first && c.transposed;
        const uint32_t row = across ? k % depth : line, column = across ? line : k % depth;
        std::memcpy(&matrix.bytes[k / depth * kTile + row * kRowBytes + column * c.number_bytes],
                    &number.bits, c.number_bytes);
      }
    }
    return matrix;
  }

  std::mt19937 random_{42};
};

TEST_F(EmulatedMma, ProductsAreThoseOfPlainLoops) {
  for (const Case& c : {Case{QUENCH_MMA_F16, 2, false}, Case{QUENCH_MMA_F16, 2, true},
                        Case{QUENCH_MMA_BF16, 2, false}, Case{QUENCH_MMA_BF16, 2, true},
                        Case{QUENCH_MMA_TF32, 4, false}, Case{QUENCH_MMA_I8, 1, false},
                        Case{QUENCH_MMA_U8, 1, false}}) {
    const bool integers = c.kind >= QUENCH_MMA_I8;
    const uint32_t k_count = kSteps * kRowBytes / c.number_bytes;
    const Matrix a = RandomMatrix(c, true), b = RandomMatrix(c, false);
    std::vector<uint32_t> start(kRows * kColumns);
    for (uint32_t i = 0; i < start.size(); ++i) {
      start[i] = integers ? i - 100 : std::bit_cast<uint32_t>(static_cast<float>(i) / 8);
    }
    std::vector<uint32_t> results[2];
    for (const bool reverse : {false, true}) {
      BeginWith("QUENCH_EMULATED_ORDER", reverse ? "reverse" : "");
      uint32_t* const sums = Upload(start);
      const uint32_t transposed = c.transposed ? 1 : 0;
      ASSERT_EQ(Run({1, 32, 4 * kTile}, Product, c.kind, transposed, Upload(a.bytes),
                    Upload(b.bytes), sums),
                CUDA_SUCCESS)
          << report();
      results[reverse ? 1 : 0] = Download(sums, start.size());
    }
    EXPECT_EQ(results[0], results[1]);
    for (uint32_t i = 0; i < start.size(); ++i) {
      const auto number = [&](uint32_t bits) {
        return integers ? static_cast<double>(static_cast<int32_t>(bits))
                        : static_cast<double>(std::bit_cast<float>(bits));
      };
      double expected = number(start[i]), magnitude = std::fabs(expected);
      for (uint32_t k = 0; k < k_count; ++k) {
        const double product =
            a.values[i / kColumns * k_count + k] * b.values[i % kColumns * k_count + k];
        expected += product;
        magnitude += std::fabs(product);
      }
      // Rounded once for each step.
      const double bound = integers ? 0 : magnitude * kSteps * 0x1p-24;
      ASSERT_NEAR(number(results[0][i]), expected, bound) << "kind " << c.kind << ", sum " << i;
    }
  }
}

// a has a 1 in its first row and column; lane 0 has the number of b, and the sum in its first
// register.
void MultiplyByOne(Thread* thread, void* const* arguments) {
  auto* const inout = Argument<uint32_t*>(arguments, 0);
  const auto kind = Argument<uint32_t>(arguments, 1);
  uint32_t sums[4] = {}, a[4] = {}, b[2] = {};
  if (thread->thread == 0) {
    a[0] = Argument<uint32_t>(arguments, 2);
    b[0] = Load(thread, inout);
    sums[0] = Load(thread, inout + 1);
  }
  thread->ops->mma(thread, kind, sums, a, b);
  if (thread->thread == 0) Store(thread, inout + 1, sums[0]);
}

TEST_F(EmulatedMma, NumbersOfEveryMagnitude) {
  const float infinity = std::numeric_limits<float>::infinity();
  struct {
    uint32_t kind, one, number;
    float expected;
  } cases[] = {
      {QUENCH_MMA_F16, 0x3C00, 0x0001, 0x1p-24f},
      {QUENCH_MMA_F16, 0x3C00, 0x83FF, -1023 * 0x1p-24f},
      {QUENCH_MMA_F16, 0x3C00, 0x0400, 0x1p-14f},
      {QUENCH_MMA_F16, 0x3C00, 0x7BFF, 65504},
      {QUENCH_MMA_F16, 0x3C00, 0xFC00, -infinity},
      {QUENCH_MMA_BF16, 0x3F80, 0x7F80, infinity},
      {QUENCH_MMA_BF16, 0x3F80, 0x0001, 0x1p-133f},
      {QUENCH_MMA_TF32, 0x3F800000, 0x3F801FFF, 1},
      {QUENCH_MMA_TF32, 0x3F800000, 0x3F802000, 1 + 0x1p-10f},
  };
  for (const auto& [kind, one, number, expected] : cases) {
    auto* const inout = Upload<uint32_t>({number, 0});
    ASSERT_EQ(Run({1, 32}, MultiplyByOne, inout, kind, one), CUDA_SUCCESS) << report();
    EXPECT_EQ(std::bit_cast<float>(Download(inout, 2)[1]), expected) << number;
  }
  auto* const inout = Upload<uint32_t>({0x7C01, 0});
  ASSERT_EQ(Run({1, 32}, MultiplyByOne, inout, QUENCH_MMA_F16, 0x3C00u), CUDA_SUCCESS);
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(Download(inout, 2)[1])));
}

TEST_F(EmulatedMma, IntegersWrap) {
  auto* const inout = Upload<uint32_t>({127, 0x7FFFFFFF});
  ASSERT_EQ(Run({1, 32}, MultiplyByOne, inout, QUENCH_MMA_U8, 255u), CUDA_SUCCESS);
  EXPECT_EQ(Download(inout, 2)[1], 0x7FFFFFFFu + 127 * 255);
}

}  // namespace
}  // namespace quench::emulated_mma_test
