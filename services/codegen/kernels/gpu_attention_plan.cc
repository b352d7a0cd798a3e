#include "services/codegen/kernels/gpu_attention_plan.h"

#include <span>

#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

constexpr int64_t kMostSize =
    256;  // of heads: in tensor cores, over 128 some registers are spilled
constexpr double kEnoughBlocks = 80;  // for a card

// Shared memory that a block may have on all GPUs with these features.
int64_t SharedBytes(const Gpu& gpu) {
  if (gpu.features >= QUENCH_CUDA_SM_80) return 99 << 10;
  return gpu.features >= QUENCH_CUDA_SM_75 ? 64 << 10 : 48 << 10;
}

// Tiles for tensor cores have 16 rows and multiples of 16 keys for each warp, those of f32 one or more rows and
// multiples of 16 keys for each 16 threads.
constexpr GpuAttentionTile kManyInCores[] = {
    {64, 64, 1}, {64, 32, 1}, {32, 64, 2}, {32, 32, 2}, {16, 64, 4}};
constexpr GpuAttentionTile kFewInCores[] = {{16, 128, 4}, {16, 64, 4}};
constexpr GpuAttentionTile kManyFloats[] = {
    {64, 32, 1}, {32, 32, 1}, {32, 16, 1}, {16, 64, 2}, {16, 16, 1}};
constexpr GpuAttentionTile kFewFloats[] = {{4, 128, 4}, {4, 64, 4}, {8, 32, 2}};

// Copies are of whole chunks.
bool IsAligned(const GpuAttentionPlan& plan) {
  const ops::AttentionShape& s = plan.shape;
  const int64_t unit = GpuAttentionPlan::kChunk / plan.element();
  if (s.size % unit != 0 || s.value_size % unit != 0) return false;
  return std::ranges::all_of(s.at, [&](const ops::HeadsAt& at) {
    return !at.folded || (at.offset % unit == 0 && at.columns.value() % unit == 0);
  });
}

bool PlanProducts(const Gpu& gpu, GpuAttentionPlan& plan) {
  const DataType type = plan.shape.type;
  if (type == DataType::kF32) {
    plan.threads = 256;
    return true;
  }
  if (!IsHalf(type)) return false;
  const bool bf16 = type == DataType::kBF16;
  plan.products = bf16 ? WarpProducts::kBF16 : WarpProducts::kF16;
  return gpu.features >= (bf16 ? QUENCH_CUDA_SM_80 : QUENCH_CUDA_SM_75);
}

double RowsOf(const KernelRequest& request, const GpuAttentionPlan& plan) {
  return static_cast<double>(plan.sharing() * TypicalValue(request.symbols, plan.shape.steps));
}

bool Fits(const Gpu& gpu, const GpuAttentionPlan& plan, const GpuAttentionTile& tile) {
  // Sums of wide heads leave few registers for scores.
  if (plan.products && plan.shape.value_size > 128 && tile.part_keys() > 32) return false;
  return plan.PlacesOf(tile).bytes <= SharedBytes(gpu);
}

// Blocks with the most queries read keys least, small ones are more: the first of which there are enough.
std::optional<GpuAttentionTile> TileForMany(const KernelRequest& request,
                                            const GpuAttentionPlan& plan,
                                            std::span<const GpuAttentionTile> tiles) {
  const double heads =
      static_cast<double>(TypicalValue(request.symbols, plan.shape.batch) * plan.shape.kv_heads);
  std::optional<GpuAttentionTile> best;
  for (const GpuAttentionTile& tile : tiles) {
    if (!Fits(*request.target.gpu, plan, tile)) continue;
    if (best && tile.rows == best->rows) continue;
    best = tile;
    const double rows = RowsOf(request, plan), of_tile = static_cast<double>(tile.rows);
    if (heads * rows / of_tile >= kEnoughBlocks && 2 * rows > of_tile) break;
  }
  return best;
}

// Few queries wait for memory most of the time: as many keys as fit, unless half of them are not there.
std::optional<GpuAttentionTile> TileForFew(const KernelRequest& request,
                                           const GpuAttentionPlan& plan,
                                           std::span<const GpuAttentionTile> tiles) {
  const Dim keys = plan.shape.keys;
  std::optional<GpuAttentionTile> best;
  for (const GpuAttentionTile& tile : tiles) {
    if (!Fits(*request.target.gpu, plan, tile)) continue;
    best = best.value_or(tile);
    const bool half_empty = keys.is_static() && 2 * keys.value() <= best->keys;
    if (half_empty && tile.rows == best->rows) best = tile;
  }
  return best;
}

}  // namespace

int64_t GpuAttentionPlan::Chunks(int64_t numbers) const {
  const int64_t chunks = numbers * element() / kChunk;
  return products ? (chunks + 1) / 2 * 2 : chunks;
}

GpuAttentionPlan::Places GpuAttentionPlan::PlacesOf(const GpuAttentionTile& tile) const {
  Places at;
  const int64_t queries = tile.rows * key_pitch();
  const auto place = [&](int64_t bytes) {
    const int64_t begin = at.bytes;
    at.bytes = (begin + bytes + kChunk - 1) / kChunk * kChunk;
    return begin;
  };
  if (!queries_in_registers()) at.queries = place(queries);
  at.keys = place(tile.keys * key_pitch());
  at.values = place(std::max(tile.keys * value_pitch(), queries_in_registers() ? queries : 0));
  if (queries_in_registers()) at.queries = at.values;
  if (!products) {
    at.exponential_pitch = 4 * tile.part_keys() + kChunk;
    at.exponentials = place(tile.parts * tile.rows * at.exponential_pitch);
  }
  if (tile.parts == 1) return at;
  const int64_t before = at.bytes, rows = tile.parts * tile.rows;
  at.bytes = 0;  // the same memory, when it is read no more
  at.sum_pitch = 4 * shape.value_size + kChunk;
  at.sums = place(rows * at.sum_pitch);
  at.largest = place(rows * 4);
  at.totals = place(rows * 4);
  at.bytes = std::max(at.bytes, before);
  return at;
}

std::optional<GpuAttentionPlan> PlanGpuAttention(const KernelRequest& request, const Group& group) {
  const std::optional<AttentionOperands> operands = ReadAttention(group);
  if (!operands) return std::nullopt;
  GpuAttentionPlan plan;
  plan.shape = operands->shape;
  plan.mask_dims = operands->mask_dims;
  plan.mask_type = operands->mask_type;
  const ops::AttentionShape& s = plan.shape;
  if (!PlanProducts(*request.target.gpu, plan) || !IsAligned(plan)) return std::nullopt;
  if (std::max(s.size, s.value_size) > kMostSize) return std::nullopt;
  const bool cores = plan.products.has_value();
  std::span<const GpuAttentionTile> many = kManyFloats, few = kFewFloats;
  if (cores) many = kManyInCores, few = kFewInCores;
  const bool fixed = s.steps.is_static();
  if (cores && !fixed) few = few.last(1);  // with more keys, code for both spills registers
  plan.few = TileForFew(request, plan, few);
  if (plan.few && fixed && s.steps.value() * plan.sharing() > plan.few->rows) plan.few.reset();
  if (!plan.few || !fixed) plan.many = TileForMany(request, plan, many);
  if (!plan.many && !(plan.few && fixed)) return std::nullopt;
  SymbolTable& symbols = request.symbols;
  const int64_t rows = plan.many ? plan.many->rows : plan.few->rows;
  const Dim row_tasks = symbols.CeilDiv(symbols.Mul(s.steps, plan.sharing()), rows);
  plan.tasks = symbols.Product(std::vector<Dim>{s.batch, s.kv_heads, row_tasks});
  return plan;
}

double GpuAttentionCost(const KernelRequest& request, const GpuAttentionPlan& plan) {
  const SymbolTable& symbols = request.symbols;
  const ops::AttentionShape& s = plan.shape;
  const double batch = static_cast<double>(TypicalValue(symbols, s.batch));
  const double rows = RowsOf(request, plan),
               keys = static_cast<double>(TypicalValue(symbols, s.keys));
  const double heads = batch * static_cast<double>(s.kv_heads);
  // Microseconds of a card in the middle; an exponential takes about as long as eight multiply-adds of f32.
  const double flops = plan.products ? 45e6 : 5e6;
  constexpr double kExponentials = 600e3;
  const double sizes = static_cast<double>(s.size + s.value_size);
  const double scores = heads * rows * keys;
  const double bytes = heads * (rows + keys) * sizes * static_cast<double>(plan.element());
  return 2 * scores * sizes / flops + scores / kExponentials + 1e-3 * bytes / request.target.gbytes;
}

}  // namespace quench::codegen
