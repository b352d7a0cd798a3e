// The positions of a model's layers in a picture of its graph: in ranks from top to bottom, each layer
// below those it reads (Sugiyama, Tagawa and Toda, IEEE Transactions on Systems, Man and Cybernetics 11(2),
// 1981).
#pragma once

#include <vector>

namespace quench::analyser {

inline constexpr int kBoxWidth = 132, kBoxHeight = 34, kRankHeight = 62;

struct GraphEdge {
  int from = 0, to = 0;  // boxes; `from` comes before `to`
};

struct GraphPoint {
  int x = 0, y = 0;
};

struct GraphLayout {
  std::vector<GraphPoint> boxes;  // centres
  // One per edge, from the lower side of a box to the upper side of another. Edges across more
  // than kMostRanks ranks consist of their two ends.
  std::vector<std::vector<GraphPoint>> routes;
  int width = 0, height = 0;
};

inline constexpr int kMostRanks = 24;

// Edges go from lower to higher indices. Deterministic; about n log n.
GraphLayout LayOut(int boxes, const std::vector<GraphEdge>& edges);

}  // namespace quench::analyser
