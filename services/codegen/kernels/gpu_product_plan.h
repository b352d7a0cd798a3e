// Convolutions and products as the blocks of a GPU compute them.
#pragma once

#include <optional>
#include <string>

#include "common/base/fields.h"
#include "services/codegen/forms/gpu_builder.h"
#include "services/codegen/kernels/conv_plan.h"
#include "services/codegen/kernels/matmul_plan.h"
#include "services/codegen/kernels/plan_text.h"

namespace quench::codegen {

// How the right side lies in memory: packed, or computed, as rows of neighbours along k or along n.
enum class GpuRight : uint8_t { kPacked, kRows, kColumns };
template <>
struct EnumNames<GpuRight> {
  static constexpr const char* kNames[] = {"packed", "rows", "columns"};
  static_assert(std::size(kNames) == static_cast<size_t>(GpuRight::kColumns) + 1);
};

// y[m, n] = sum over k of a[m, k] w[n, k], row by row, for each matrix of a batch. For a convolution, m counts the pixels
// of the output of all images, k the taps of the kernel and, for each, the channels of the input, which lie together
// (NHWC): rows of `a` are gathered while they are read (implicit GEMM: Chetlur et al., "cuDNN: Efficient Primitives for
// Deep Learning", 2014). Groups of a convolution are products side by side, of their own channels.
// A block computes a tile of block_m x block_n results. It steps along k by 64 bytes, copies of which for the rows of
// its tile are under way for `stages` - 1 steps ahead, and its warps multiply in tensor cores, or, of f32, each thread a
// patch of rows and columns. The sums then lie in shared memory, and threads finish neighbouring ones.
struct GpuProductPlan {
  std::optional<WarpProducts> products;  // nothing: of f32, in the ordinary units
  std::optional<ConvShape> conv;
  std::optional<ByteRoot> bytes;
  DataType type = DataType::kF32;  // of `a` and `w`, in memory
  int64_t channels = 0;   // of a group of a convolution's input in memory, padded to whole chunks
  bool prepares = false;  // the padded input is a copy
  int64_t groups = 1;
  GpuRight right = GpuRight::kPacked;
  bool a_batched = false, w_batched = false;  // else the same matrix for all of a batch
  Dim batch = 1, m = 1, n = 1, k = 1;  // n of a group; k of numbers, those of padding included
  Dim steps = 1;                       // of 64 bytes along k
  // Bytes that a copy of `a`, and of a computed right side, takes at once: 16, or fewer where rows do not begin or end
  // with whole chunks.
  int64_t a_piece = 16, w_piece = 16;
  bool has_bias = false;
  int64_t block_m = 64, block_n = 64;
  int64_t warp_m = 32, warp_n = 32;  // the part of a warp, in tensor cores
  int stages = 3;
  int64_t threads = 128;
  int registers = 0;             // of a thread at most, where that costs no spills
  Dim m_parts = 1, n_parts = 1;  // blocks along m, and along n of a group
  Dim tasks = 1, scratch = 0;

  friend bool operator==(const GpuProductPlan&, const GpuProductPlan&) = default;
  QUENCH_FIELDS(products, conv, bytes, type, channels, prepares, groups, right, a_batched,
                w_batched, batch, m, n, k, steps, a_piece, w_piece, has_bias, block_m, block_n,
                warp_m, warp_n, stages, threads, registers, m_parts, n_parts, tasks, scratch)

  static constexpr int64_t kChunk = 16;      // bytes
  static constexpr int64_t kStepChunks = 4;  // of a row
  static constexpr int64_t kRow = kStepChunks * kChunk;
  int64_t element() const { return DataTypeBits(type) / 8; }
  int64_t unit() const { return kChunk / element(); }  // numbers of a chunk
  // A row of packed weights.
  int64_t row_bytes() const { return steps.value() * kRow; }
  int64_t padded_n() const { return n_parts.value() * block_n; }  // of a group
  // In a stage, the right side's tile follows that of `a`. A tile of columns has a row of block_n numbers for each
  // number along k, a few banks from the one before.
  int64_t a_tile() const { return block_m * kRow; }
  int64_t column_rows() const { return kRow / element(); }
  int64_t column_pitch() const { return block_n * element() + (element() == 4 ? 32 : 16); }
  int64_t stage_bytes() const {
    return a_tile() +
           (right == GpuRight::kColumns ? column_rows() * column_pitch() : block_n * kRow);
  }
  int64_t shared_bytes() const { return std::max(stages * stage_bytes(), block_m * block_n * 4); }
  DataType sums() const { return bytes ? DataType::kI32 : DataType::kF32; }
  // Whether factors are rounded first: weights where they are packed, others where registers hold them.
  bool rounds() const { return products == WarpProducts::kTF32; }
};

// Nothing where the target has no such products of these operands.
std::optional<GpuProductPlan> PlanGpuConv(const KernelRequest& request, const ConvRoot& conv);
std::optional<GpuProductPlan> PlanGpuMatMul(const KernelRequest& request,
                                            const MatMulRoot& product);

}  // namespace quench::codegen
