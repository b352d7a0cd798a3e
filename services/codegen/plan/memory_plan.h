// Placement of buffers in one arena. Knows nothing of graphs: items have a size and an interval of
// steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quench::codegen {

inline constexpr int64_t kArenaAlignment = 64;

// Something that needs memory during steps [begin, end], both included.
struct ArenaItem {
  int64_t bytes = 0;  // rounded up to the alignment by the plan
  int begin = 0;
  int end = 0;
};

struct ArenaPlan {
  std::vector<int64_t> offsets;  // one per item, multiples of kArenaAlignment
  int64_t bytes = 0;
  int64_t lower_bound = 0;  // largest sum of sizes live at one step: no placement needs less
};

// The smallest arena found: greedy by size, greedy by size times duration, then hill-climbing over
// orders from the better of the two (swaps, first fit; a fixed number of tries with a fixed seed,
// so the result is deterministic). Sizes are >= 0 and their sum fits in int64.
ArenaPlan PlanArena(std::span<const ArenaItem> items);

// A placement as constraints that hold at every size: for each item, the items that lie directly
// below it. An offset computed as the largest end of those (0 without any), in the order of
// `order`, never lets two live items overlap, and at the sizes of the plan gives an arena no larger
// than the plan's.
struct StackingOrder {
  std::vector<int> order;               // items, each after everything below it
  std::vector<std::vector<int>> below;  // transitively reduced
};
StackingOrder StackingOf(std::span<const ArenaItem> items, const ArenaPlan& plan);

// Steps at which the set of live items is not a subset of another step's: the lower bound is the
// largest sum over one of these sets, at any sizes.
std::vector<std::vector<int>> MaximalLiveSets(std::span<const ArenaItem> items);

}  // namespace quench::codegen
