// Tiles: how work is cut so that accumulators fill the registers and few remainders are left.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/fields.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// `total` units in as few parts of at most `most` units as possible, as even as possible: `bigs`
// parts of `big` units, then `smalls` parts of big - 1 units.
struct Split {
  int64_t big = 1;
  int64_t bigs = 0;
  int64_t smalls = 0;
  int64_t parts() const { return bigs + smalls; }
  // First unit of a part.
  int64_t Start(int64_t part) const { return part * big - (part > bigs ? part - bigs : 0); }
};
Split SplitEvenly(int64_t total, int64_t most);

// Vectors of output channels in panels: as few and as even as SplitEvenly's parts, but larger and smaller
// ones interleaved, so that panels in a row have their share of the vectors. Where they differ, the first
// panel is a larger one and the last a smaller one.
struct PanelSplit {
  int64_t vectors = 1;
  int64_t count = 1;
  int64_t parts() const { return count; }
  int64_t most() const { return (vectors + count - 1) / count; }
  bool even() const { return vectors % count == 0; }
  // First vector of a panel.
  int64_t Start(int64_t panel) const { return (panel * vectors + count - 1) / count; }
  int64_t Size(int64_t panel) const { return Start(panel + 1) - Start(panel); }
  friend bool operator==(const PanelSplit&, const PanelSplit&) = default;
  QUENCH_FIELDS(vectors, count)
};
PanelSplit SplitIntoPanels(int64_t vectors, int64_t most);

// An output tile of the micro-kernel: y rows of x pixels by `vectors` vectors of output channels.
struct Tile {
  int y = 1;
  int x = 1;
  int vectors = 1;
  double cycles = 0;  // predicted for the whole output (per pixel when the width is symbolic)
  friend bool operator==(const Tile&, const Tile&) = default;
  QUENCH_FIELDS(y, x, vectors, cycles)
};

// Steps of a reduction in one body: about a hundred multiply-adds of the target's tile, which run as fast
// as longer bodies and compile sooner.
int StepsOfBody(const Target& target);

struct TileProblem {
  std::optional<int64_t> height;  // output rows and pixels per row; nothing when symbolic
  std::optional<int64_t> width;
  int64_t vectors = 1;       // output channels in vectors
  int64_t most_vectors = 8;  // of a tile
  int64_t steps = 1;         // length of the reduction
  double operations = 1;     // that one step takes, for a vector of a pixel, beside a multiply-add
  int spare = 0;             // registers that it needs beside accumulators and operands
  double taps = 1;  // steps that read the same number of the input, one soon after the other
};
// The cheapest tile whose accumulators and operands fit the registers of the target.
Tile ChooseTile(const Target& target, const TileProblem& problem);
// The cheapest tile of each number of vectors and rows, cheapest first: what a measured choice tries.
// The first is ChooseTile's.
std::vector<Tile> RankTiles(const Target& target, const TileProblem& problem);

// How a plan of the micro-kernel differs from the one that is predicted to be the cheapest.
struct PlanVariation {
  size_t tile = 0;           // of RankTiles
  bool other_tasks = false;  // by panels instead of by bands or rows, or the other way round
};
// The variations to propose: only the cheapest where nothing is measured, below level 4.
std::span<const PlanVariation> VariationsAt(int opt_level);

}  // namespace quench::codegen
