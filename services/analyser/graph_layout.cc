#include "services/analyser/graph_layout.h"

#include <algorithm>
#include <numeric>

namespace quench::analyser {
namespace {

constexpr int kSweeps = 8;
constexpr size_t kMostBends = 100'000;  // further edges have their ends alone
constexpr double kBetween = 18, kBendWidth = 10;

// Boxes, and behind them the bends of edges that pass ranks.
class Layering {
 public:
  Layering(int boxes, const std::vector<GraphEdge>& edges) : boxes_(boxes), edges_(edges) {
    Rank();
    AddBends();
  }

  GraphLayout Finish() {
    for (int sweep = 0; sweep < kSweeps; ++sweep) Order(sweep % 2 == 0);
    PlaceInOrder();
    for (int sweep = 0; sweep < kSweeps; ++sweep) Straighten(sweep % 2 == 0);
    return Take();
  }

 private:
  size_t At(int index) const { return static_cast<size_t>(index); }

  // The longest path to each box; boxes that read nothing lie right above their first reader.
  void Rank() {
    rank_.assign(At(boxes_), 0);
    std::vector<bool> reads(At(boxes_));
    std::vector<std::vector<int>> into(At(boxes_)), out(At(boxes_));
    for (const GraphEdge& edge : edges_) {
      into[At(edge.to)].push_back(edge.from);
      out[At(edge.from)].push_back(edge.to);
    }
    for (int box = 0; box < boxes_; ++box) {
      for (const int from : into[At(box)])
        rank_[At(box)] = std::max(rank_[At(box)], rank_[At(from)] + 1);
    }
    for (int box = 0; box < boxes_; ++box) {
      if (!into[At(box)].empty() || out[At(box)].empty()) continue;
      int first = rank_[At(out[At(box)][0])];
      for (const int to : out[At(box)]) first = std::min(first, rank_[At(to)]);
      rank_[At(box)] = std::max(first - 1, 0);
    }
  }

  void AddBends() {
    above_.resize(At(boxes_));
    below_.resize(At(boxes_));
    for (const GraphEdge& edge : edges_) {
      const int span = rank_[At(edge.to)] - rank_[At(edge.from)];
      bends_.emplace_back();
      if (span > kMostRanks || rank_.size() > At(boxes_) + kMostBends) continue;
      int from = edge.from;
      for (int step = 1; step < span; ++step) {
        const int bend = static_cast<int>(rank_.size());
        rank_.push_back(rank_[At(edge.from)] + step);
        above_.emplace_back();
        below_.emplace_back();
        bends_.back().push_back(bend);
        Join(from, bend);
        from = bend;
      }
      Join(from, edge.to);
    }
    int ranks = 0;
    for (const int rank : rank_) ranks = std::max(ranks, rank + 1);
    rows_.resize(At(ranks));
    for (size_t i = 0; i < rank_.size(); ++i) rows_[At(rank_[i])].push_back(static_cast<int>(i));
    place_.resize(rank_.size());
    for (const std::vector<int>& row : rows_) Number(row);
  }
  void Join(int upper, int lower) {
    below_[At(upper)].push_back(lower);
    above_[At(lower)].push_back(upper);
  }
  void Number(const std::vector<int>& row) {
    for (size_t i = 0; i < row.size(); ++i) place_[At(row[i])] = static_cast<double>(i);
  }

  const std::vector<int>& Neighbours(int item, bool downward) const {
    return downward ? above_[At(item)] : below_[At(item)];
  }
  // `none` for items without neighbours on that side.
  double MeanPlace(int item, bool downward, double none) const {
    const std::vector<int>& neighbours = Neighbours(item, downward);
    if (neighbours.empty()) return none;
    double sum = 0;
    for (const int each : neighbours) sum += place_[At(each)];
    return sum / static_cast<double>(neighbours.size());
  }

  // The wanted place of a box: the mean of the boxes beside it in the graph, so that edges that
  // pass many ranks do not pull chains aside.
  double WantedPlace(int item, bool downward) const {
    double sum = 0;
    int boxes = 0;
    for (const int each : Neighbours(item, downward)) {
      if (item >= boxes_ || each >= boxes_) continue;
      sum += place_[At(each)];
      ++boxes;
    }
    return boxes > 0 ? sum / boxes : MeanPlace(item, downward, place_[At(item)]);
  }

  // Rows by the mean place of their neighbours in the row before.
  void Order(bool downward) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      std::vector<int>& row = rows_[downward ? i : rows_.size() - 1 - i];
      std::vector<std::pair<double, int>> keys;
      for (const int item : row)
        keys.emplace_back(MeanPlace(item, downward, place_[At(item)]), item);
      std::stable_sort(keys.begin(), keys.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t k = 0; k < row.size(); ++k) row[k] = keys[k].second;
      Number(row);
    }
  }

  double Width(int item) const { return item < boxes_ ? kBoxWidth : kBendWidth; }
  // Between the centres of two that lie side by side.
  double Apart(int left, int right) const { return (Width(left) + Width(right)) / 2 + kBetween; }

  void PlaceInOrder() {
    for (const std::vector<int>& row : rows_) {
      double at = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        if (i > 0) at += Apart(row[i - 1], row[i]);
        place_[At(row[i])] = at;
      }
      for (const int item : row) place_[At(item)] -= at / 2;
    }
  }

  // The places of a row nearest to the means of its neighbours that keep order and distance: least
  // squares by pooling adjacent violators. Bends pull harder, which keeps long edges straight.
  void Straighten(bool downward) {
    struct Pool {
      double sum, weight;
      size_t items;
      double mean() const { return sum / weight; }
    };
    for (size_t i = 0; i < rows_.size(); ++i) {
      const std::vector<int>& row = rows_[downward ? i : rows_.size() - 1 - i];
      std::vector<double> offset(row.size(), 0);
      std::vector<Pool> pools;
      for (size_t k = 0; k < row.size(); ++k) {
        if (k > 0) offset[k] = offset[k - 1] + Apart(row[k - 1], row[k]);
        const double wanted = WantedPlace(row[k], downward) - offset[k];
        const double weight = row[k] < boxes_ ? 1 : 4;
        pools.push_back({wanted * weight, weight, 1});
        while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
          const Pool last = pools.back();
          pools.pop_back();
          pools.back().sum += last.sum;
          pools.back().weight += last.weight;
          pools.back().items += last.items;
        }
      }
      size_t k = 0;
      for (const Pool& pool : pools) {
        for (size_t item = 0; item < pool.items; ++item, ++k)
          place_[At(row[k])] = pool.mean() + offset[k];
      }
    }
  }

  GraphLayout Take() const {
    GraphLayout layout;
    double left = 0, right = 0;
    for (const double place : place_) {
      left = std::min(left, place - kBoxWidth / 2.0);
      right = std::max(right, place + kBoxWidth / 2.0);
    }
    const auto point = [&](int item, int down) {
      return GraphPoint{static_cast<int>(place_[At(item)] - left),
                        kBoxHeight / 2 + rank_[At(item)] * kRankHeight + down};
    };
    for (int box = 0; box < boxes_; ++box) layout.boxes.push_back(point(box, 0));
    for (size_t i = 0; i < edges_.size(); ++i) {
      std::vector<GraphPoint>& route = layout.routes.emplace_back();
      route.push_back(point(edges_[i].from, kBoxHeight / 2));
      for (const int bend : bends_[i]) route.push_back(point(bend, 0));
      route.push_back(point(edges_[i].to, -kBoxHeight / 2));
    }
    layout.width = static_cast<int>(right - left);
    layout.height = static_cast<int>(rows_.size()) * kRankHeight;
    return layout;
  }

  const int boxes_;
  const std::vector<GraphEdge>& edges_;
  // Ranks of items: boxes first, then bends.
  std::vector<int> rank_;
  std::vector<std::vector<int>> above_, below_;  // neighbours one rank up and down
  std::vector<double> place_;
  std::vector<std::vector<int>> bends_;  // of each edge
  std::vector<std::vector<int>> rows_;
};

}  // namespace

GraphLayout LayOut(int boxes, const std::vector<GraphEdge>& edges) {
  return Layering(boxes, edges).Finish();
}

}  // namespace quench::analyser
