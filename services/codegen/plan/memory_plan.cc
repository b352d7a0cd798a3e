#include "services/codegen/plan/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace quench::codegen {
namespace {

using LiveTogether = std::vector<std::vector<int>>;  // for each item, the others

bool Overlap(const ArenaItem& a, const ArenaItem& b) {
  return a.begin <= b.end && b.begin <= a.end;
}

int64_t RoundUp(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

LiveTogether Conflicts(std::span<const ArenaItem> items) {
  std::vector<int> by_begin(items.size());
  std::iota(by_begin.begin(), by_begin.end(), 0);
  std::stable_sort(by_begin.begin(), by_begin.end(), [&](int a, int b) {
    return items[static_cast<size_t>(a)].begin < items[static_cast<size_t>(b)].begin;
  });
  LiveTogether conflicts(items.size());
  for (size_t i = 0; i < by_begin.size(); ++i) {
    const ArenaItem& first = items[static_cast<size_t>(by_begin[i])];
    for (size_t j = i + 1; j < by_begin.size(); ++j) {
      const ArenaItem& second = items[static_cast<size_t>(by_begin[j])];
      if (second.begin > first.end) break;
      if (!Overlap(first, second)) continue;
      conflicts[static_cast<size_t>(by_begin[i])].push_back(by_begin[j]);
      conflicts[static_cast<size_t>(by_begin[j])].push_back(by_begin[i]);
    }
  }
  return conflicts;
}

// Places items in `order`, each in the lowest gap among those it is live with.
ArenaPlan FirstFit(std::span<const ArenaItem> items, const LiveTogether& conflicts,
                   std::span<const int> order) {
  ArenaPlan plan;
  plan.offsets.assign(items.size(), -1);
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (const int id : order) {
    taken.clear();
    for (const int other : conflicts[static_cast<size_t>(id)]) {
      const int64_t offset = plan.offsets[static_cast<size_t>(other)];
      if (offset >= 0)
        taken.emplace_back(offset, offset + RoundUp(items[static_cast<size_t>(other)].bytes));
    }
    std::sort(taken.begin(), taken.end());
    const int64_t bytes = RoundUp(items[static_cast<size_t>(id)].bytes);
    int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (begin - at >= bytes) break;
      at = std::max(at, end);
    }
    plan.offsets[static_cast<size_t>(id)] = at;
    plan.bytes = std::max(plan.bytes, at + bytes);
  }
  return plan;
}

template <typename Key>
std::vector<int> OrderBy(std::span<const ArenaItem> items, Key key) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return key(items[static_cast<size_t>(a)]) > key(items[static_cast<size_t>(b)]);
  });
  return order;
}

int64_t LowerBound(std::span<const ArenaItem> items) {
  std::vector<std::pair<int, int64_t>> events;
  for (const ArenaItem& item : items) {
    events.emplace_back(item.begin, RoundUp(item.bytes));
    events.emplace_back(item.end + 1, -RoundUp(item.bytes));
  }
  std::sort(events.begin(), events.end());  // at one step the frees (negative) come first
  int64_t live = 0, most = 0;
  for (const auto& [step, change] : events) most = std::max(most, live += change);
  return most;
}

// Swaps pairs of the order and keeps what is not worse, within a budget of conflict visits.
void HillClimb(std::span<const ArenaItem> items, const LiveTogether& conflicts, int64_t goal,
               std::vector<int> order, ArenaPlan& best) {
  size_t edges = items.size();
  for (const auto& list : conflicts) edges += list.size();
  const size_t tries = std::min<size_t>(500, 20'000'000 / std::max<size_t>(edges, 1));
  uint64_t state = 0x9e3779b97f4a7c15u;
  auto random = [&](size_t n) {  // Marsaglia's xorshift64
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<size_t>(state % n);
  };
  for (size_t i = 0; i < tries && best.bytes > goal && items.size() > 1; ++i) {
    const size_t a = random(order.size()), b = random(order.size());
    std::swap(order[a], order[b]);
    ArenaPlan plan = FirstFit(items, conflicts, order);
    if (plan.bytes <= best.bytes) {
      best = std::move(plan);
    } else {
      std::swap(order[a], order[b]);
    }
  }
}

}  // namespace

ArenaPlan PlanArena(std::span<const ArenaItem> items) {
  const LiveTogether conflicts = Conflicts(items);
  const int64_t lower_bound = LowerBound(items);
  std::vector<int> order = OrderBy(items, [](const ArenaItem& item) { return item.bytes; });
  ArenaPlan best = FirstFit(items, conflicts, order);
  const std::vector<int> by_area = OrderBy(items, [](const ArenaItem& item) {
    return static_cast<double>(item.bytes) * (item.end - item.begin + 1);
  });
  ArenaPlan other = FirstFit(items, conflicts, by_area);
  if (other.bytes < best.bytes) {
    best = std::move(other);
    order = by_area;
  }
  HillClimb(items, conflicts, lower_bound, std::move(order), best);
  best.lower_bound = lower_bound;
  return best;
}

StackingOrder StackingOf(std::span<const ArenaItem> items, const ArenaPlan& plan) {
  const LiveTogether conflicts = Conflicts(items);
  StackingOrder result;
  result.order.resize(items.size());
  std::iota(result.order.begin(), result.order.end(), 0);
  // Ties (items without bytes) go by number, which still gives every pair one direction.
  auto lower = [&](int a, int b) {
    return std::pair(plan.offsets[static_cast<size_t>(a)], a) <
           std::pair(plan.offsets[static_cast<size_t>(b)], b);
  };
  std::sort(result.order.begin(), result.order.end(), lower);
  result.below.resize(items.size());
  std::vector<int> mark(items.size(), -1);
  for (const int id : result.order) {
    std::vector<int> candidates;
    for (const int other : conflicts[static_cast<size_t>(id)]) {
      if (lower(other, id)) candidates.push_back(other);
    }
    // Highest first: what is below something already taken is implied.
    std::sort(candidates.begin(), candidates.end(), [&](int a, int b) { return lower(b, a); });
    std::vector<int>& below = result.below[static_cast<size_t>(id)];
    for (const int other : candidates) {
      if (mark[static_cast<size_t>(other)] == id) continue;
      below.push_back(other);
      std::vector<int> stack = {other};
      while (!stack.empty()) {
        const int top = stack.back();
        stack.pop_back();
        if (mark[static_cast<size_t>(top)] == id) continue;
        mark[static_cast<size_t>(top)] = id;
        for (const int next : result.below[static_cast<size_t>(top)]) stack.push_back(next);
      }
    }
    std::reverse(below.begin(), below.end());
  }
  return result;
}

std::vector<std::vector<int>> MaximalLiveSets(std::span<const ArenaItem> items) {
  // The live set can only be maximal where an item begins and, before the next begins, one ends.
  std::vector<std::pair<int, int>> events;  // (step, 0 begin / 1 end)
  for (const ArenaItem& item : items) {
    events.emplace_back(item.begin, 0);
    events.emplace_back(item.end, 1);
  }
  std::sort(events.begin(), events.end());
  std::vector<std::vector<int>> sets;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].second != 1 || i == 0 || events[i - 1].second != 0) continue;
    std::vector<int> live;
    for (size_t id = 0; id < items.size(); ++id) {
      if (items[id].begin <= events[i].first && events[i].first <= items[id].end)
        live.push_back(static_cast<int>(id));
    }
    sets.push_back(std::move(live));
  }
  return sets;
}

}  // namespace quench::codegen
