// Kernels and layouts for all nodes of a graph at once: values and nodes as the optimiser sees them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "services/codegen/kernels/kernel.h"
#include "services/codegen/plan/pairwise.h"

namespace quench::codegen {

bool IsRowMajor(const Candidate& candidate);

// A choice is a candidate for each node, by its index. Its cost is that of the candidates, and of the
// transforms from each value's layout to those its users want, each wanted layout once.
// Nodes that are not kernels have no candidates, and are row-major throughout.
class LayoutProblem {
 public:
  LayoutProblem(const Graph& graph, const Target& target,
                std::vector<std::vector<Candidate>> options);

  // The cheapest choice whose copies of weights take at most `room` bytes beyond the weights: a byte has
  // the lowest price, in microseconds, at which they do (a Lagrange multiplier). At a given price the
  // choice is optimal if the graph's structure permits (PairwiseProblem), otherwise the cheapest one found
  // from three starts.
  std::vector<int> Solve(int64_t room);

  // The cost in microseconds, without prices.
  double CostOf(const std::vector<int>& chosen);
  // Whether the last result of Solve is known to be the cheapest at its price.
  bool optimal() const { return optimal_; }

 private:
  // Candidates of a node with the same layouts: at most the cheapest is chosen.
  using Class = std::vector<int>;

  std::vector<int> SolveAt(double price);
  std::vector<int> Best(const std::vector<int>& from);
  void DescendFrom(int start);
  int64_t Extra(const std::vector<int>& chosen) const;
  double PricedCost(size_t n, int option) const;
  int Start(size_t n, int start) const;
  double Around(size_t n) const;
  bool Improve(size_t n);
  void Descend();
  double Total() const;
  double ValueCost(ValueId id) const;
  const Layout& Produced(ValueId id) const;
  double TransformCost(const Type& type, const Layout& from, const Layout& to) const;

  void Classify();
  int CheapestOf(size_t n, const Class& members) const;
  PairwiseProblem Pairwise();
  void AddValue(ValueId id, PairwiseProblem& problem);
  // The layout in which a candidate gives a value of the node, and the one it wants for input i;
  // null: none.
  const Layout& Given(size_t n, int option, ValueId id) const;
  const Layout* Wanted(size_t n, int option, size_t i) const;

  const Graph& graph_;
  std::vector<std::vector<Candidate>> options_;
  std::vector<std::vector<std::pair<size_t, size_t>>> users_;  // (node, input)
  std::vector<std::vector<Class>> classes_;                    // by node
  std::vector<int> variables_;                                 // of PairwiseProblem, by node; or -1
  std::vector<int> chosen_;
  std::vector<int64_t> slots_;
  double gbytes_ = 1;
  double price_ = 0;  // per byte of copies of weights
  bool optimal_ = false;
  const Layout plain_;
};

}  // namespace quench::codegen
