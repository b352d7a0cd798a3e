#include "services/codegen/kernels/attention_plan.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "services/codegen/kernels/attention_operands.h"
#include "services/codegen/kernels/conv_plan.h"

namespace quench::codegen {
namespace {

constexpr int64_t kTaskRows = 128;  // what shares the work of transposing keys
constexpr int64_t kBlockKeys = 256;
constexpr int64_t kSingleKeys = 384;  // up to here all keys are one block

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Offsets of the parts of scratch.
void PlaceScratch(AttentionPlan& plan) {
  int64_t end = 0;
  const auto place = [&](int64_t& at, int64_t floats) {
    at = end;
    end = RoundUp(end + 4 * floats, 64);
  };
  const int64_t width = plan.value_vectors() * plan.lanes;
  const int64_t all = plan.single ? 0 : plan.task_rows() * plan.sharing();
  place(plan.keys_at, plan.many ? plan.block * plan.size_words() : 0);
  place(plan.values_at, plan.many ? plan.block * width : 0);
  place(plan.queries_at, plan.rows.most * plan.QueryBytes() / 4);
  place(plan.scores_at, plan.rows.most * plan.block);
  place(plan.factors_at, plan.rows.most);
  place(plan.sums_at, all * width);
  place(plan.largest_at, all);
  place(plan.totals_at, all);
  plan.scratch = end;
}

// Whether words of two numbers of queries and keys are aligned.
bool HasWords(const ops::AttentionShape& s) {
  if (s.size % 2 != 0) return false;
  for (const int i : {ops::kAttentionQuery, ops::kAttentionKey}) {
    const ops::HeadsAt& at = s.at[i];
    if (at.folded && (at.offset % 2 != 0 || at.columns.value() % 2 != 0)) return false;
  }
  return true;
}

// The tiles of a head's scores; their panels divide its values, too.
TileProblem TilesOf(const KernelRequest& request, const AttentionPlan& plan) {
  TileProblem problem;
  problem.height = 1;
  if (plan.shape.steps.is_static()) problem.width = plan.shape.steps.value();
  problem.vectors = plan.halves() ? plan.value_vectors() : 4 * request.target.tile_vectors;
  problem.most_vectors = request.target.tile_vectors;
  problem.steps = plan.size_words();
  return problem;
}

// Microseconds of both products of a head, in matrices.
double MatrixMicros(const KernelRequest& request, const AttentionPlan& plan) {
  const double keys = TypicalSize(request.symbols, plan.shape.keys);
  TileProblem scores = TilesOf(request, plan), values = scores;
  const auto whole = static_cast<int64_t>((keys + plan.kStep - 1) / plan.kStep);
  scores.vectors = whole * plan.kStep / plan.lanes;
  values.steps = whole * MatrixUnit::kWords;
  const double cycles = plan.form->Tiles(request.target, scores).front().cycles +
                        plan.form->Tiles(request.target, values).front().cycles;
  const double rows =
      plan.shape.steps.is_static() ? 1 : TypicalSize(request.symbols, plan.shape.steps);
  return rows * cycles * request.target.FlopsPerCycle(plan.lanes) / (request.target.gflops * 1e3);
}

}  // namespace

std::optional<AttentionPlan> PlanAttention(const KernelRequest& request, const Group& group,
                                           const AnyForm& form) {
  const std::optional<AttentionOperands> operands = ReadAttention(group);
  if (!operands) return std::nullopt;
  SymbolTable& symbols = request.symbols;
  AttentionPlan plan;
  plan.shape = operands->shape;
  plan.mask_dims = operands->mask_dims;
  plan.mask_type = operands->mask_type;
  plan.form = form;
  const ops::AttentionShape& s = plan.shape;
  plan.lanes = request.target.f32_lanes();
  if (plan.lanes < 4 || !std::has_single_bit(static_cast<unsigned>(plan.lanes)))
    return std::nullopt;
  plan.unroll = StepsOfBody(request.target);
  if (plan.halves()) {
    if (!HasWords(s)) return std::nullopt;
    plan.unroll = MatrixUnit::kWords;
  }
  const std::vector<Tile> of_form = plan.form->Tiles(request.target, TilesOf(request, plan));
  if (of_form.empty()) return std::nullopt;
  const Tile tile = of_form.front();
  plan.vectors = tile.vectors;
  plan.rows = {s.steps, tile.x};

  int64_t keys_of_tile = int64_t{plan.vectors} * plan.lanes;
  if (plan.halves()) keys_of_tile = std::lcm(keys_of_tile, plan.kStep);
  // Keys and values of a block take half of the second cache.
  const int64_t fits = request.target.l2_bytes / 2 / (4 * (s.size + s.value_size));
  plan.single = s.keys.is_static() && s.keys.value() <= std::min(kSingleKeys, fits);
  plan.block = RoundUp(plan.single ? s.keys.value() : std::clamp(fits, int64_t{1}, kBlockKeys),
                       keys_of_tile);
  plan.few = !s.steps.is_static() || s.steps.value() <= AttentionPlan::kFewQueries;
  plan.many = !s.steps.is_static() || s.steps.value() > AttentionPlan::kFewQueries;
  if (plan.halves() && !plan.many) return std::nullopt;
  const Dim tiles = plan.rows.Parts(symbols);
  const int64_t rows = std::max<int64_t>(tile.x, kTaskRows / plan.sharing());
  plan.task_tiles = (rows + tile.x - 1) / tile.x;
  if (tiles.is_static()) {  // evenly
    const int64_t tasks = (tiles.value() + plan.task_tiles - 1) / plan.task_tiles;
    plan.task_tiles = (tiles.value() + tasks - 1) / tasks;
  }
  // Few queries are one task, whose rows have the sums of all of them.
  if (plan.few)
    plan.task_tiles = std::max(plan.task_tiles, (AttentionPlan::kFewQueries + tile.x - 1) / tile.x);
  plan.row_tasks = symbols.CeilDiv(tiles, plan.task_tiles);
  plan.tasks = symbols.Product(std::vector<Dim>{s.batch, s.kv_heads, plan.row_tasks});
  PlaceScratch(plan);
  return plan;
}

double AttentionCost(const KernelRequest& request, const AttentionPlan& plan) {
  const SymbolTable& symbols = request.symbols;
  const ops::AttentionShape& s = plan.shape;
  const double heads = TypicalSize(symbols, s.batch) * static_cast<double>(s.heads);
  const double steps = TypicalSize(symbols, s.steps), keys = TypicalSize(symbols, s.keys);
  // An exponential takes about as long as twelve multiply-adds.
  constexpr double kExponential = 12, kOfPeak = 0.8;
  const double products = plan.halves() ? 0 : static_cast<double>(s.size + s.value_size);
  const double flops = 2 * heads * steps * keys * (products + kExponential);
  double micros = flops / (request.target.gflops * kOfPeak * 1e3);
  if (plan.halves()) micros += heads * MatrixMicros(request, plan);
  const double kv = TypicalSize(symbols, s.batch) * static_cast<double>(s.kv_heads) * keys;
  const double bytes = kv * static_cast<double>(s.size + s.value_size) * DataTypeBits(s.type) / 8;
  return std::max(micros, bytes / (request.target.gbytes * 1e3));
}

}  // namespace quench::codegen
