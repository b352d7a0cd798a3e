#include "services/codegen/kernels/gpu_product_plan.h"

#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

// False where bytes need what tensor cores do not do: another zero point for each run, weights of two bytes.
bool TakesBytes(const ByteRoot& bytes) {
  return bytes.x.zero_input < 0 && !bytes.w && bytes.twice && bytes.twice->empty();
}

// The products of operands of these types; false where the target has none.
bool PlanProducts(const KernelRequest& request, DataType a, DataType w, const std::optional<ByteRoot>& bytes,
                  GpuProductPlan& plan) {
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

// Large tiles read less, small ones give more blocks: the largest of which there are enough for a card.
void PlanBlocks(const KernelRequest& request, GpuProductPlan& plan) {
  struct Shape {
    int64_t block_m, block_n, warp_m, warp_n;
  };
  static constexpr Shape kShapes[] = {
      {128, 128, 64, 32}, {128, 64, 32, 32}, {64, 64, 32, 32}, {32, 64, 32, 16}};
  constexpr double kEnoughBlocks = 80;
  const bool large =
      request.target.gpu->features >= QUENCH_CUDA_SM_80;  // shared memory for the first
  const auto m = static_cast<double>(TypicalValue(request.symbols, plan.m));
  for (const Shape& shape : kShapes) {
    if (shape.block_m * shape.block_n > 128 * 64 && !large) continue;
    if (!plan.products && shape.block_m != 64) continue;
    plan.block_m = shape.block_m;
    plan.block_n = shape.block_n;
    plan.warp_m = shape.warp_m;
    plan.warp_n = shape.warp_n;
    plan.threads = 32 * (shape.block_m / shape.warp_m) * (shape.block_n / shape.warp_n);
    if (!plan.products) plan.threads = 256;
    const double blocks =
        (m / static_cast<double>(shape.block_m)) * static_cast<double>(plan.n_parts());
    if (blocks >= kEnoughBlocks && plan.n * 2 > shape.block_n) break;
  }
  SymbolTable& symbols = request.symbols;
  plan.tasks = symbols.Mul(symbols.CeilDiv(plan.m, plan.block_m), plan.n_parts());
}

}  // namespace

std::optional<GpuProductPlan> PlanGpuConv(const KernelRequest& request, const ConvRoot& conv) {
  const ConvShape& shape = conv.shape;
  if (shape.groups != 1) return std::nullopt;
  SymbolTable& symbols = request.symbols;
  GpuProductPlan plan;
  if (!PlanProducts(request, shape.x_type, conv.w_type(), shape.bytes, plan))
    return std::nullopt;
  plan.conv = shape;
  plan.conv->bytes.reset();
  const int64_t unit = GpuProductPlan::kChunk / plan.element();
  plan.channels = (shape.in_channels + unit - 1) / unit * unit;
  plan.prepares = plan.channels != shape.in_channels;
  plan.chunks = shape.kernel_h * shape.kernel_w * plan.channels / unit;
  plan.m = symbols.Mul(shape.n, symbols.Mul(shape.out_h, shape.out_w));
  plan.n = shape.out_channels;
  plan.has_bias = shape.has_bias;
  PlanBlocks(request, plan);
  return plan;
}

std::optional<GpuProductPlan> PlanGpuMatMul(const KernelRequest& request,
                                            const MatMulRoot& product) {
  const MatMulShape& shape = product.shape;
  const bool plain = !shape.a_transposed && shape.alpha == 1 && shape.beta == 1 && !shape.lengths;
  if (!shape.constant_b || shape.b_batched || !plain) return std::nullopt;
  GpuProductPlan plan;
  if (!PlanProducts(request, shape.a_type, shape.b_type, shape.bytes, plan))
    return std::nullopt;
  const int64_t bytes = shape.k.value() * plan.element();
  if (bytes % GpuProductPlan::kChunk != 0) return std::nullopt;
  plan.chunks = bytes / GpuProductPlan::kChunk;
  plan.m = request.symbols.Mul(shape.batch, shape.m);
  plan.n = shape.n.value();
  plan.has_bias = shape.has_bias;
  PlanBlocks(request, plan);
  return plan;
}

}  // namespace quench::codegen
