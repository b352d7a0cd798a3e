#include "services/codegen/plan/pairwise.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

namespace quench::codegen {
namespace {

// Costs of all assignments to `scope`, ascending variables, the last one's values side by side.
struct Table {
  std::vector<int> scope;
  std::vector<double> costs;
};

class Elimination {
 public:
  Elimination(std::vector<int> sizes, std::vector<Table> tables, size_t most)
      : sizes_(std::move(sizes)),
        most_(static_cast<double>(most)),
        neighbours_(sizes_.size()),
        tables_(std::move(tables)),
        of_(sizes_.size()),
        keys_(sizes_.size()) {
    for (size_t t = 0; t < tables_.size(); ++t) Register(t);
    for (int v = 0; v < static_cast<int>(sizes_.size()); ++v)
      queue_.insert(keys_[At(v)] = KeyOf(v));
  }

  // `values` holds the start and becomes the solution; whether that is optimal.
  bool Run(std::vector<int>& values) {
    bool optimal = true;
    while (!queue_.empty()) {
      const auto [entries, v] = *queue_.begin();
      if (entries <= most_) {
        Eliminate(v);
        continue;
      }
      optimal = false;
      const int keeps = MostNeighbours();
      Fix(keeps, values[At(keeps)]);
    }
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      size_t at = 0;
      for (const int u : step->scope)
        at = at * static_cast<size_t>(sizes_[At(u)]) + static_cast<size_t>(values[At(u)]);
      values[At(step->variable)] = step->best[at];
    }
    return optimal;
  }

 private:
  static size_t At(int v) { return static_cast<size_t>(v); }

  // The value of an eliminated variable, by the values of those that it has costs with.
  struct Step {
    int variable = 0;
    std::vector<int> scope;
    std::vector<int> best;
  };

  void Register(size_t t) {
    for (const int v : tables_[t].scope) {
      of_[At(v)].push_back(t);
      for (const int u : tables_[t].scope) {
        if (u != v) neighbours_[At(v)].insert(u);
      }
    }
  }

  // Entries of the table that eliminating v makes.
  std::pair<double, int> KeyOf(int v) const {
    double entries = 1;
    for (const int u : neighbours_[At(v)]) entries *= sizes_[At(u)];
    return {entries, v};
  }

  void Requeue(int v) {
    queue_.erase(keys_[At(v)]);
    queue_.insert(keys_[At(v)] = KeyOf(v));
  }

  int MostNeighbours() const {
    int most = queue_.begin()->second;
    for (const auto& [entries, v] : queue_) {
      if (neighbours_[At(v)].size() > neighbours_[At(most)].size()) most = v;
    }
    return most;
  }

  // The tables of v, which are no more.
  std::vector<Table> Take(int v) {
    std::vector<Table> taken;
    for (const size_t t : of_[At(v)]) {
      if (tables_[t].scope.empty()) continue;
      taken.push_back(std::move(tables_[t]));
      tables_[t] = {};
    }
    of_[At(v)].clear();
    return taken;
  }

  void Leave(int v) {
    queue_.erase(keys_[At(v)]);
    for (const int u : neighbours_[At(v)]) neighbours_[At(u)].erase(v);
  }

  void Add(Table table) {
    if (table.scope.empty()) return;
    tables_.push_back(std::move(table));
    Register(tables_.size() - 1);
  }

  // Calls visit(values of `scope`), the last one's fastest.
  template <typename Visit>
  void ForEach(const std::vector<int>& scope, const Visit& visit) const {
    std::vector<int> values(scope.size(), 0);
    while (true) {
      visit(values);
      size_t i = scope.size();
      while (i > 0 && ++values[i - 1] == sizes_[At(scope[i - 1])]) values[--i] = 0;
      if (i == 0) return;
    }
  }

  // Where the entry of a table with v lies: its place for v = 0, as sums over `scope`, and v's stride.
  struct Reader {
    const Table* table = nullptr;
    std::vector<size_t> strides;  // for each of `scope`; 0: not of the table
    size_t stride = 0;
    size_t Place(const std::vector<int>& values) const {
      size_t at = 0;
      for (size_t i = 0; i < values.size(); ++i) at += strides[i] * static_cast<size_t>(values[i]);
      return at;
    }
  };

  Reader ReaderOf(const Table& table, const std::vector<int>& scope, int v) const {
    Reader reader{&table, std::vector<size_t>(scope.size(), 0), 0};
    size_t stride = 1;
    for (size_t i = table.scope.size(); i-- > 0;) {
      const int u = table.scope[i];
      const auto found = std::lower_bound(scope.begin(), scope.end(), u);
      if (u == v) {
        reader.stride = stride;
      } else {
        reader.strides[static_cast<size_t>(found - scope.begin())] = stride;
      }
      stride *= static_cast<size_t>(sizes_[At(u)]);
    }
    return reader;
  }

  void Eliminate(int v) {
    const std::vector<Table> taken = Take(v);
    Step step{v, {neighbours_[At(v)].begin(), neighbours_[At(v)].end()}, {}};
    std::vector<Reader> readers;
    for (const Table& table : taken) readers.push_back(ReaderOf(table, step.scope, v));
    Table table{step.scope, {}};
    ForEach(step.scope, [&](const std::vector<int>& values) {
      std::vector<double> costs(At(sizes_[At(v)]), 0);
      for (const Reader& reader : readers) {
        const size_t at = reader.Place(values);
        for (size_t i = 0; i < costs.size(); ++i)
          costs[i] += reader.table->costs[at + i * reader.stride];
      }
      const auto best = std::min_element(costs.begin(), costs.end());
      step.best.push_back(static_cast<int>(best - costs.begin()));
      table.costs.push_back(*best);
    });
    Leave(v);
    Add(std::move(table));
    for (const int u : step.scope) Requeue(u);
    steps_.push_back(std::move(step));
  }

  void Fix(int v, int value) {
    const std::vector<int> around(neighbours_[At(v)].begin(), neighbours_[At(v)].end());
    const std::vector<Table> taken = Take(v);
    Leave(v);
    for (const Table& table : taken) {
      Table rest;
      for (const int u : table.scope) {
        if (u != v) rest.scope.push_back(u);
      }
      const Reader reader = ReaderOf(table, rest.scope, v);
      ForEach(rest.scope, [&](const std::vector<int>& values) {
        rest.costs.push_back(
            table.costs[reader.Place(values) + static_cast<size_t>(value) * reader.stride]);
      });
      Add(std::move(rest));
    }
    for (const int u : around) Requeue(u);
  }

  const std::vector<int> sizes_;
  const double most_;
  std::vector<std::set<int>> neighbours_;
  std::vector<Table> tables_;
  std::vector<std::vector<size_t>>
      of_;  // variable -> its tables, those that are no more among them
  std::vector<std::pair<double, int>> keys_;
  std::set<std::pair<double, int>> queue_;  // of variables that are left
  std::vector<Step> steps_;
};

}  // namespace

int PairwiseProblem::AddVariable(std::vector<double> costs) {
  own_.push_back(std::move(costs));
  return static_cast<int>(own_.size()) - 1;
}

void PairwiseProblem::AddCosts(int a, int b, std::span<const double> costs) {
  const bool swapped = a > b;
  const size_t rows = own_[static_cast<size_t>(a)].size();
  const size_t columns = own_[static_cast<size_t>(b)].size();
  std::vector<double>& sums = joint_[swapped ? std::pair(b, a) : std::pair(a, b)];
  sums.resize(rows * columns, 0);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j)
      sums[swapped ? j * rows + i : i * columns + j] += costs[i * columns + j];
  }
}

double PairwiseProblem::CostOf(std::span<const int> values) const {
  double cost = 0;
  for (size_t v = 0; v < own_.size(); ++v) cost += own_[v][static_cast<size_t>(values[v])];
  for (const auto& [pair, costs] : joint_) {
    const size_t columns = own_[static_cast<size_t>(pair.second)].size();
    cost += costs[static_cast<size_t>(values[static_cast<size_t>(pair.first)]) * columns +
                  static_cast<size_t>(values[static_cast<size_t>(pair.second)])];
  }
  return cost;
}

PairwiseProblem::Solution PairwiseProblem::Solve(std::span<const int> start, size_t most) const {
  std::vector<int> sizes;
  std::vector<Table> tables;
  for (size_t v = 0; v < own_.size(); ++v) {
    sizes.push_back(static_cast<int>(own_[v].size()));
    tables.push_back({{static_cast<int>(v)}, own_[v]});
  }
  for (const auto& [pair, costs] : joint_) tables.push_back({{pair.first, pair.second}, costs});
  Solution solution{{start.begin(), start.end()}, false};
  solution.optimal = Elimination(std::move(sizes), std::move(tables), most).Run(solution.values);
  return solution;
}

}  // namespace quench::codegen
