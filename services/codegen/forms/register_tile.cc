#include "services/codegen/forms/register_tile.h"

#include <algorithm>

namespace quench::codegen {
namespace {

double CyclesPerStep(const Target& target, double operations, int pixels, int vectors) {
  const CoreCosts& costs = target.costs;
  const double fma = pixels * vectors / costs.multiply_adds * (target.fma ? 1 : 2) * operations;
  const double loads =
      (target.multiply_by_lane ? pixels / 4.0 + vectors : pixels + vectors) / costs.loads;
  return std::max({fma, loads, costs.latency}) + costs.pixel_load * pixels +
         costs.vector_load * vectors;
}

double TileCycles(const Target& target, const TileProblem& problem, int64_t pixels,
                  int64_t vectors) {
  const double body = CyclesPerStep(target, problem.operations, static_cast<int>(pixels),
                                    static_cast<int>(vectors));
  return body * static_cast<double>(problem.steps) + target.costs.tile_start +
         target.costs.sum_end * static_cast<double>(pixels * vectors);
}

// Sum over the big and small parts of three axes.
double TotalCycles(const Target& target, const TileProblem& problem, const Tile& tile) {
  const Split y = SplitEvenly(problem.height.value_or(tile.y), tile.y);
  const Split x = SplitEvenly(problem.width.value_or(tile.x), tile.x);
  const Split v = SplitEvenly(problem.vectors, tile.vectors);
  double total = 0;
  for (int bits = 0; bits < 8; ++bits) {
    const auto part = [&](const Split& split, int bit) {
      return (bits & bit) == 0 ? std::pair(split.bigs, split.big)
                               : std::pair(split.smalls, split.big - 1);
    };
    const auto [ny, py] = part(y, 1);
    const auto [nx, px] = part(x, 2);
    const auto [nv, pv] = part(v, 4);
    if (ny * nx * nv == 0) continue;
    total += static_cast<double>(ny * nx * nv) * TileCycles(target, problem, py * px, pv);
  }
  if (!problem.width) total /= static_cast<double>(tile.x);
  if (!problem.height) total /= static_cast<double>(tile.y);
  return total;
}

}  // namespace

Split SplitEvenly(int64_t total, int64_t most) {
  Split split;
  if (total <= 0) return split;
  const int64_t parts = (total + most - 1) / most;
  split.big = (total + parts - 1) / parts;
  split.smalls = parts * split.big - total;
  split.bigs = parts - split.smalls;
  return split;
}

int StepsOfBody(const Target& target) {
  constexpr int kManySums = 16;
  return target.tile_rows * target.tile_vectors > kManySums ? 4 : 8;
}

PanelSplit SplitIntoPanels(int64_t vectors, int64_t most) {
  return {vectors, std::max<int64_t>(1, (vectors + most - 1) / most)};
}

std::vector<Tile> RankTiles(const Target& target, const TileProblem& problem) {
  const int accumulators = target.tile_rows * target.tile_vectors;
  // Without a fused multiply-add, the product needs a register.
  const int spare = std::max(problem.spare, target.fma ? 0 : 1);
  constexpr double kWorthIt = 0.995;  // what a larger tile must save
  Tile first;
  first.cycles = TotalCycles(target, problem, first);
  Tile best = first;
  std::vector<Tile> tiles;
  for (int vectors = 1; vectors <= std::min(problem.most_vectors, problem.vectors); ++vectors) {
    for (int y = 1; y <= 3; ++y) {
      if (y > 1 && (!problem.height || !problem.width || *problem.height < y)) break;
      std::optional<Tile> cheapest;
      for (int x = 1; x * y * vectors <= accumulators; ++x) {
        if (x * y * vectors + vectors + 1 + spare > target.vector_registers) break;
        if (problem.width && x > *problem.width) break;
        Tile tile{y, x, vectors, 0};
        tile.cycles = TotalCycles(target, problem, tile);
        if (!cheapest || tile.cycles < cheapest->cycles * kWorthIt) cheapest = tile;
        if (tile.cycles < best.cycles * kWorthIt) best = tile;
      }
      if (cheapest) tiles.push_back(*cheapest);
    }
  }
  const auto same = [&](const Tile& tile) {
    return tile.vectors == best.vectors && tile.y == best.y;
  };
  std::erase_if(tiles, same);
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.cycles < b.cycles; });
  tiles.insert(tiles.begin(), best);
  return tiles;
}

std::span<const PlanVariation> VariationsAt(int opt_level) {
  static constexpr PlanVariation kAll[] = {{0, false}, {0, true}, {1, false}, {2, false}};
  return std::span(kAll).first(opt_level >= 4 ? std::size(kAll) : 1);
}

Tile ChooseTile(const Target& target, const TileProblem& problem) {
  return RankTiles(target, problem).front();
}

}  // namespace quench::codegen
