#include "services/codegen/kernels/gpu_product_plan.h"

#include <numeric>

#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

// False where bytes need what tensor cores do not do: another zero point for each run, weights of two bytes.
bool TakesBytes(const ByteRoot& bytes) {
  return bytes.x.zero_input < 0 && !bytes.w && bytes.twice && bytes.twice->empty();
}

// The products of operands of these types; false where the target has none.
bool PlanProducts(const KernelRequest& request, DataType a, DataType w,
                  const std::optional<ByteRoot>& bytes, GpuProductPlan& plan) {
  const Gpu& gpu = *request.target.gpu;
  plan.type = a;
  if (bytes) {
    if (!TakesBytes(*bytes) || gpu.features < QUENCH_CUDA_SM_75) return false;
    plan.bytes = bytes;
    plan.bytes->x.flip = false;
    plan.products = a == DataType::kU8 ? WarpProducts::kU8 : WarpProducts::kI8;
    return a == DataType::kU8 || a == DataType::kI8;
  }
  if (a != w) return false;
  if (a == DataType::kF32) {
    if (request.options.tf32 && gpu.has_tf32()) plan.products = WarpProducts::kTF32;
    return true;
  }
  if (!IsHalf(a)) return false;
  const bool bf16 = a == DataType::kBF16;
  plan.products = bf16 ? WarpProducts::kBF16 : WarpProducts::kF16;
  return gpu.features >= (bf16 ? QUENCH_CUDA_SM_80 : QUENCH_CUDA_SM_75);
}

struct BlockShape {
  int64_t block_m, block_n, warp_m, warp_n;
};

// Threads of a block: as many as warps cover it, or, without tensor cores, with 8 x 4 sums each.
int64_t ThreadsOf(const BlockShape& shape, bool in_warps) {
  if (!in_warps) return std::max<int64_t>(128, shape.block_m * shape.block_n / 32);
  return 32 * (shape.block_m / shape.warp_m) * (shape.block_n / shape.warp_n);
}

// Large tiles read less, small ones give more blocks: the largest of which there are enough for a card.
void PlanBlocks(const KernelRequest& request, GpuProductPlan& plan) {
  static constexpr BlockShape kShapes[] = {
      {128, 128, 64, 32}, {128, 64, 32, 32}, {64, 64, 32, 32}, {32, 64, 32, 16}};
  constexpr double kEnoughBlocks = 80;
  const bool large =
      request.target.gpu->features >= QUENCH_CUDA_SM_80;  // shared memory for the first
  SymbolTable& symbols = request.symbols;
  const auto m = static_cast<double>(TypicalValue(symbols, plan.m));
  const auto n = static_cast<double>(TypicalValue(symbols, plan.n));
  const double products =
      static_cast<double>(TypicalValue(symbols, plan.batch)) * static_cast<double>(plan.groups);
  for (const BlockShape& shape : kShapes) {
    if (shape.block_m * shape.block_n > 128 * 64 && !(large && plan.products)) continue;
    plan.block_m = shape.block_m;
    plan.block_n = shape.block_n;
    plan.warp_m = shape.warp_m;
    plan.warp_n = shape.warp_n;
    plan.threads = ThreadsOf(shape, plan.products.has_value());
    const auto across = static_cast<double>(shape.block_n);
    const double blocks =
        products * (m / static_cast<double>(shape.block_m)) * std::ceil(n / across);
    if (blocks >= kEnoughBlocks && n * 2 > across) break;
  }
  // Two blocks of 256 threads, or four of 128, then fit a multiprocessor. Turing's copies need registers too, and the
  // largest tiles of tensor cores a few more than 128.
  if (!plan.products || (large && plan.threads <= 128)) plan.registers = 128;
  plan.m_parts = symbols.CeilDiv(plan.m, plan.block_m);
  plan.n_parts = symbols.CeilDiv(plan.n, plan.block_n);
  plan.tasks =
      symbols.Mul(symbols.Mul(plan.batch, plan.m_parts), symbols.Mul(plan.n_parts, plan.groups));
  plan.steps = symbols.CeilDiv(symbols.Mul(plan.k, plan.element()), GpuProductPlan::kRow);
}

// The bytes that divide rows of this many numbers, whose first one is aligned to whole chunks.
int64_t PieceOf(const SymbolTable& symbols, Dim numbers, int64_t element) {
  const int64_t multiple =
      numbers.is_static() ? numbers.value() : symbols.at(numbers.symbol()).multiple_of;
  return std::gcd(GpuProductPlan::kChunk, multiple % GpuProductPlan::kChunk * element);
}

// Channels of groups cannot be padded.
bool TakesGroups(const ConvShape& shape, int64_t unit) {
  return shape.groups == 1 || shape.in_channels / shape.groups % unit == 0;
}

}  // namespace

std::optional<GpuProductPlan> PlanGpuConv(const KernelRequest& request, const ConvRoot& conv) {
  const ConvShape& shape = conv.shape;
  SymbolTable& symbols = request.symbols;
  GpuProductPlan plan;
  if (!PlanProducts(request, shape.x_type, conv.w_type(), shape.bytes, plan)) return std::nullopt;
  const int64_t unit = plan.unit();
  if (!TakesGroups(shape, unit)) return std::nullopt;
  plan.conv = shape;
  plan.conv->bytes.reset();
  plan.groups = shape.groups;
  const int64_t channels = shape.in_channels / shape.groups;
  plan.channels = (channels + unit - 1) / unit * unit;
  plan.prepares = plan.channels != channels;
  plan.k = shape.kernel_h * shape.kernel_w * plan.channels;
  plan.m = symbols.Mul(shape.n, symbols.Mul(shape.out_h, shape.out_w));
  plan.n = shape.out_channels / shape.groups;
  plan.has_bias = shape.has_bias;
  PlanBlocks(request, plan);
  return plan;
}

std::optional<GpuProductPlan> PlanGpuMatMul(const KernelRequest& request,
                                            const MatMulRoot& product) {
  const MatMulShape& shape = product.shape;
  const bool plain = !shape.a_transposed && shape.alpha == 1 && shape.beta == 1 && !shape.lengths;
  if (!plain || (shape.constant_b && shape.b_batched)) return std::nullopt;
  GpuProductPlan plan;
  if (!PlanProducts(request, shape.a_type, shape.b_type, shape.bytes, plan)) return std::nullopt;
  const int64_t element = plan.element();
  plan.k = shape.k;
  plan.a_piece = PieceOf(request.symbols, shape.k, element);
  plan.a_batched = shape.a_batched;
  if (!shape.constant_b) {
    plan.right = shape.b_transposed ? GpuRight::kRows : GpuRight::kColumns;
    plan.w_piece = PieceOf(request.symbols, shape.b_transposed ? shape.k : shape.n, element);
    plan.w_batched = shape.b_batched;
  }
  plan.batch = shape.batch;
  plan.m = shape.m;
  plan.n = shape.n;
  plan.has_bias = shape.has_bias;
  PlanBlocks(request, plan);
  return plan;
}

}  // namespace quench::codegen
