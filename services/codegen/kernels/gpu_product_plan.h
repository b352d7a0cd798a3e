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

template <>
struct EnumNames<WarpProducts> {
  static constexpr const char* kNames[] = {"f16", "bf16", "tf32", "i8", "u8"};
  static_assert(std::size(kNames) == static_cast<size_t>(WarpProducts::kU8) + 1);
};

// y[m, n] = sum over k of a[m, k] w[n, k], row by row. For a convolution, m counts the pixels of the output of all
// images, k the taps of the kernel and, for each, the channels of the input, which lie together (NHWC): rows of `a` are
// gathered while they are read (implicit GEMM: Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014).
// A block computes a tile of block_m x block_n results. It steps along k by 64 bytes, copies of which for the rows of
// its tile are under way for `stages` - 1 steps ahead, and its warps multiply in tensor cores, or, of f32, each thread a
// patch of 16 rows and columns apart. The sums then lie in shared memory, and threads finish neighbouring ones.
struct GpuProductPlan {
  std::optional<WarpProducts> products;  // nothing: of f32, in the ordinary units
  std::optional<ConvShape> conv;
  std::optional<ByteRoot> bytes;
  DataType type = DataType::kF32;  // of `a` and `w`, in memory
  int64_t channels = 0;            // of a convolution's input in memory, padded to whole chunks
  bool prepares = false;           // the padded input is a copy
  int64_t chunks = 1;              // of 16 bytes along k
  Dim m = 1;
  int64_t n = 1;
  bool has_bias = false;
  int64_t block_m = 64, block_n = 64;
  int64_t warp_m = 32, warp_n = 32;  // the part of a warp, in tensor cores
  int stages = 3;
  int64_t threads = 128;
  Dim tasks = 1, scratch = 0;

  friend bool operator==(const GpuProductPlan&, const GpuProductPlan&) = default;
  QUENCH_FIELDS(products, conv, bytes, type, channels, prepares, chunks, m, n, has_bias, block_m,
                block_n, warp_m, warp_n, stages, threads, tasks, scratch)

  static constexpr int64_t kChunk = 16;      // bytes
  static constexpr int64_t kStepChunks = 4;  // of a row
  int64_t element() const { return DataTypeBits(type) / 8; }
  int64_t steps() const { return (chunks + kStepChunks - 1) / kStepChunks; }
  int64_t row_bytes() const { return steps() * kStepChunks * kChunk; }  // of packed weights
  int64_t n_parts() const { return (n + block_n - 1) / block_n; }
  int64_t padded_n() const { return n_parts() * block_n; }
  int64_t stage_bytes() const { return (block_m + block_n) * kStepChunks * kChunk; }
  int64_t shared_bytes() const { return std::max(stages * stage_bytes(), block_m * block_n * 4); }
  // Whether factors are rounded first: weights where they are packed, activations where registers hold them.
  bool rounds() const { return products == WarpProducts::kTF32; }
  DataType sums() const { return bytes ? DataType::kI32 : DataType::kF32; }
};

// Nothing where the target has no such products of these operands.
std::optional<GpuProductPlan> PlanGpuConv(const KernelRequest& request, const ConvRoot& conv);
std::optional<GpuProductPlan> PlanGpuMatMul(const KernelRequest& request,
                                            const MatMulRoot& product);

}  // namespace quench::codegen
