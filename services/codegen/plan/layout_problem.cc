#include "services/codegen/plan/layout_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "services/codegen/plan/laid_out_sizes.h"

namespace quench::codegen {
namespace {

constexpr double kForbidden = std::numeric_limits<double>::infinity();

// Blocks that are not full are transformed lane by lane (measured: three channels of eight at 2.4 GB/s).
bool FillsBlocks(const Type& type, const Layout& layout) {
  if (layout.blocked_axis < 0) return true;
  const Dim dim = type.dims[static_cast<size_t>(layout.blocked_axis)];
  return dim.is_static() && dim.value() % layout.block == 0;
}

bool SameLayouts(const Candidate& a, const Candidate& b) {
  if (a.outputs != b.outputs || a.packed != b.packed) return false;
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const bool packed = i < a.packed.size() && a.packed[i];
    if (!packed && !(a.inputs[i] == b.inputs[i])) return false;
  }
  return true;
}

}  // namespace

bool IsRowMajor(const Candidate& candidate) {
  auto plain = [](const Layout& layout) { return layout.row_major(); };
  return std::all_of(candidate.inputs.begin(), candidate.inputs.end(), plain) &&
         std::all_of(candidate.outputs.begin(), candidate.outputs.end(), plain);
}

LayoutProblem::LayoutProblem(const Graph& graph, const Target& target,
                             std::vector<std::vector<Candidate>> options)
    : graph_(graph),
      options_(std::move(options)),
      users_(graph.values.size()),
      chosen_(graph.nodes.size(), 0),
      slots_(TypicalSlots(*graph.symbols)),
      gbytes_(target.gbytes) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != quench::kNone)
        users_[static_cast<size_t>(node.inputs[i])].emplace_back(n, i);
    }
  }
  Classify();
}

void LayoutProblem::Classify() {
  classes_.resize(options_.size());
  for (size_t n = 0; n < options_.size(); ++n) {
    for (int i = 0; i < static_cast<int>(options_[n].size()); ++i) {
      const Candidate& candidate = options_[n][static_cast<size_t>(i)];
      const auto same =
          std::find_if(classes_[n].begin(), classes_[n].end(), [&](const Class& members) {
            return SameLayouts(options_[n][static_cast<size_t>(members[0])], candidate);
          });
      if (same == classes_[n].end()) {
        classes_[n].push_back({i});
      } else {
        same->push_back(i);
      }
    }
  }
}

std::vector<int> LayoutProblem::Solve(int64_t room) {
  std::vector<int> best = SolveAt(0);
  if (Extra(best) <= room) return best;
  double low = 0, high = 1e-6;  // a microsecond a megabyte
  while (Extra(best = SolveAt(high)) > room && high < 1e6) {
    low = high;
    high *= 8;
  }
  for (int i = 0; i < 8; ++i) {
    const double middle = low == 0 ? high / 16 : std::sqrt(low * high);
    std::vector<int> chosen = SolveAt(middle);
    const bool fits = Extra(chosen) <= room;
    (fits ? high : low) = middle;
    if (fits) best = std::move(chosen);
  }
  return best;
}

double LayoutProblem::CostOf(const std::vector<int>& chosen) {
  chosen_ = chosen;
  price_ = 0;
  return Total();
}

// ---- One node after another ----

std::vector<int> LayoutProblem::SolveAt(double price) {
  price_ = price;
  DescendFrom(0);
  std::vector<int> best = Best(chosen_);
  if (optimal_) return best;
  chosen_ = best;
  double least = Total();
  for (const int start : {1, 2}) {
    DescendFrom(start);
    std::vector<int> other = Best(chosen_);
    chosen_ = other;
    if (const double cost = Total(); cost < least) {
      least = cost;
      best = std::move(other);
    }
  }
  return best;
}

void LayoutProblem::DescendFrom(int start) {
  for (size_t n = 0; n < options_.size(); ++n) chosen_[n] = Start(n, start);
  Descend();
}

// Together, then one by one again, as long as that helps.
std::vector<int> LayoutProblem::Best(const std::vector<int>& from) {
  chosen_ = from;
  const PairwiseProblem problem = Pairwise();
  for (int round = 0; round < 4; ++round) {
    const double before = Total();
    std::vector<int> start(problem.size(), 1);  // transforms that are there may be used
    for (size_t n = 0; n < options_.size(); ++n) {
      for (size_t c = 0; c < classes_[n].size(); ++c) {
        const Class& members = classes_[n][c];
        if (std::find(members.begin(), members.end(), chosen_[n]) != members.end())
          start[static_cast<size_t>(variables_[n])] = static_cast<int>(c);
      }
    }
    const PairwiseProblem::Solution solution = problem.Solve(start);
    for (size_t n = 0; n < options_.size(); ++n) {
      if (classes_[n].empty()) continue;
      const auto c = static_cast<size_t>(solution.values[static_cast<size_t>(variables_[n])]);
      chosen_[n] = CheapestOf(n, classes_[n][c]);
    }
    optimal_ = solution.optimal;
    if (optimal_) break;
    Descend();
    if (!(Total() < before * (1 - 1e-9))) break;
  }
  return chosen_;
}

int64_t LayoutProblem::Extra(const std::vector<int>& chosen) const {
  int64_t bytes = 0;
  for (size_t n = 0; n < options_.size(); ++n) {
    if (!options_[n].empty()) bytes += options_[n][static_cast<size_t>(chosen[n])].extra_bytes;
  }
  return bytes;
}

// With the price of its bytes.
double LayoutProblem::PricedCost(size_t n, int option) const {
  const Candidate& candidate = options_[n][static_cast<size_t>(option)];
  return candidate.cost + price_ * static_cast<double>(candidate.extra_bytes);
}

// 0: the cheapest; 1: the cheapest row-major one; 2: the cheapest that is not.
int LayoutProblem::Start(size_t n, int start) const {
  int best = -1;
  auto better = [&](int a, int b) { return b < 0 || PricedCost(n, a) < PricedCost(n, b); };
  for (const bool any : {false, true}) {
    for (int i = 0; i < static_cast<int>(options_[n].size()); ++i) {
      const bool plain = IsRowMajor(options_[n][static_cast<size_t>(i)]);
      if (!any && ((start == 1 && !plain) || (start == 2 && plain))) continue;
      if (better(i, best)) best = i;
    }
    if (best >= 0) break;
  }
  return std::max(best, 0);
}

const Layout& LayoutProblem::Produced(ValueId id) const {
  const Value& value = graph_.value(id);
  if (value.producer == quench::kNone) return plain_;
  const auto n = static_cast<size_t>(value.producer);
  return options_[n].empty() ? plain_ : Given(n, chosen_[n], id);
}

double LayoutProblem::ValueCost(ValueId id) const {
  const Value& value = graph_.value(id);
  if (value.constant != nullptr) return 0;  // laid out at compile time
  const Layout& produced = Produced(id);
  std::vector<const Layout*> wanted;
  double cost = 0;
  auto want = [&](const Layout& layout) {
    if (layout == produced) return;
    for (const Layout* other : wanted) {
      if (*other == layout) return;
    }
    wanted.push_back(&layout);
    cost += TransformCost(value.type, produced, layout);
  };
  for (const auto& [n, i] : users_[static_cast<size_t>(id)]) {
    const Layout* layout = options_[n].empty() ? &plain_ : Wanted(n, chosen_[n], i);
    if (layout != nullptr) want(*layout);
  }
  if (graph_.IsOutput(id)) want(plain_);
  return cost;
}

// Read once, written once, plus the call.
double LayoutProblem::TransformCost(const Type& type, const Layout& from, const Layout& to) const {
  if (!type.ranked) return 0;
  const auto bytes = static_cast<double>(BytesAt({type.dtype, type.dims, from}, slots_) +
                                         BytesAt({type.dtype, type.dims, to}, slots_));
  constexpr double kByLanes = 6;
  return 0.5 +
         1e-3 * bytes / gbytes_ * (FillsBlocks(type, from) && FillsBlocks(type, to) ? 1 : kByLanes);
}

double LayoutProblem::Around(size_t n) const {
  double cost = options_[n].empty() ? 0 : PricedCost(n, chosen_[n]);
  for (const ValueId id : graph_.nodes[n].inputs) cost += id == quench::kNone ? 0 : ValueCost(id);
  for (const ValueId id : graph_.nodes[n].outputs) cost += id == quench::kNone ? 0 : ValueCost(id);
  return cost;
}

bool LayoutProblem::Improve(size_t n) {
  if (options_[n].size() < 2) return false;
  const int before = chosen_[n];
  int best = before;
  double best_cost = Around(n);
  for (int i = 0; i < static_cast<int>(options_[n].size()); ++i) {
    chosen_[n] = i;
    if (const double cost = Around(n); cost < best_cost * (1 - 1e-9)) {
      best_cost = cost;
      best = i;
    }
  }
  chosen_[n] = best;
  return best != before;
}

void LayoutProblem::Descend() {
  for (int sweep = 0; sweep < 8; ++sweep) {
    bool changed = false;
    for (size_t n = 0; n < options_.size(); ++n) changed = Improve(n) || changed;
    for (size_t n = options_.size(); n-- > 0;) changed = Improve(n) || changed;
    if (!changed) return;
  }
}

double LayoutProblem::Total() const {
  double cost = 0;
  for (size_t n = 0; n < options_.size(); ++n) {
    if (!options_[n].empty()) cost += PricedCost(n, chosen_[n]);
  }
  for (size_t v = 0; v < graph_.values.size(); ++v) cost += ValueCost(static_cast<ValueId>(v));
  return cost;
}

// ---- All nodes together ----

const Layout& LayoutProblem::Given(size_t n, int option, ValueId id) const {
  const Candidate& candidate = options_[n][static_cast<size_t>(option)];
  const auto& outputs = graph_.nodes[n].outputs;
  const auto index =
      static_cast<size_t>(std::find(outputs.begin(), outputs.end(), id) - outputs.begin());
  return index < candidate.outputs.size() ? candidate.outputs[index] : plain_;
}

const Layout* LayoutProblem::Wanted(size_t n, int option, size_t i) const {
  const Candidate& candidate = options_[n][static_cast<size_t>(option)];
  if (i < candidate.packed.size() && candidate.packed[i]) return nullptr;
  return i < candidate.inputs.size() ? &candidate.inputs[i] : &plain_;
}

int LayoutProblem::CheapestOf(size_t n, const Class& members) const {
  return *std::min_element(members.begin(), members.end(),
                           [&](int a, int b) { return PricedCost(n, a) < PricedCost(n, b); });
}

// A node is a variable with its classes as values; so is each transform that some choice needs: 1
// where it is there.
PairwiseProblem LayoutProblem::Pairwise() {
  PairwiseProblem problem;
  variables_.assign(options_.size(), -1);
  for (size_t n = 0; n < options_.size(); ++n) {
    if (classes_[n].empty()) continue;
    std::vector<double> costs;
    for (const Class& members : classes_[n]) costs.push_back(PricedCost(n, CheapestOf(n, members)));
    variables_[n] = problem.AddVariable(std::move(costs));
  }
  for (size_t v = 0; v < graph_.values.size(); ++v) AddValue(static_cast<ValueId>(v), problem);
  return problem;
}

void LayoutProblem::AddValue(ValueId id, PairwiseProblem& problem) {
  const Value& value = graph_.value(id);
  if (value.constant != nullptr) return;
  std::vector<const Layout*> wanted;
  const auto want = [&](const Layout* layout) {
    const bool known =
        layout == nullptr || std::any_of(wanted.begin(), wanted.end(),
                                         [&](const Layout* other) { return *other == *layout; });
    if (!known) wanted.push_back(layout);
  };
  bool plain = graph_.IsOutput(id);  // it is wanted row-major whatever is chosen
  for (const auto& [n, i] : users_[static_cast<size_t>(id)]) {
    plain = plain || classes_[n].empty();
    for (const Class& members : classes_[n]) want(Wanted(n, members[0], i));
  }
  if (plain) want(&plain_);
  const auto producer = static_cast<size_t>(value.producer);
  const bool fixed = value.producer == quench::kNone || classes_[producer].empty();
  const auto cost = [&](const Layout& from, const Layout& to) {
    return from == to ? 0 : TransformCost(value.type, from, to);
  };
  for (const Layout* layout : wanted) {
    const double forbidden = plain && *layout == plain_ ? kForbidden : 0;
    const int there = problem.AddVariable({forbidden, fixed ? cost(plain_, *layout) : 0});
    if (!fixed) {
      std::vector<double> costs;
      for (const Class& members : classes_[producer]) {
        costs.push_back(0);
        costs.push_back(cost(Given(producer, members[0], id), *layout));
      }
      problem.AddCosts(variables_[producer], there, costs);
    }
    for (const auto& [n, i] : users_[static_cast<size_t>(id)]) {
      if (classes_[n].empty()) continue;
      std::vector<double> costs;
      for (const Class& members : classes_[n]) {
        const Layout* wants = Wanted(n, members[0], i);
        costs.push_back(wants != nullptr && *wants == *layout ? kForbidden : 0);
        costs.push_back(0);
      }
      problem.AddCosts(variables_[n], there, costs);
    }
  }
}

}  // namespace quench::codegen
