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

// A choice is a candidate for each node, by its index; it costs what the candidates cost, and the
// transforms between what a value is and what its users want: each wanted layout of a value once.
// Nodes that are not kernels have no candidates, and are row-major throughout.
class LayoutProblem {
 public:
  LayoutProblem(const Graph& graph, const Target& target,
                std::vector<std::vector<Candidate>> options);

  // The cheapest choice whose copies of weights take at most `room` bytes beyond the weights: a byte
  // has the lowest price, in microseconds, with which they do (a Lagrange multiplier). At a price
  // the choice is optimal wherever the graph lets it be found so (PairwiseProblem), else the
  // cheapest that is found from three starts.
  std::vector<int> Solve(int64_t room);

  // Microseconds, without prices.
  double CostOf(const std::vector<int>& chosen);
  // Whether what Solve gave last is known to be the cheapest at its price.
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
  std::vector<std::vector<Class>> classes_;                    // of each node
  std::vector<int> variables_;                                 // of each node in Pairwise; or -1
  std::vector<int> chosen_;
  std::vector<int64_t> slots_;
  double gbytes_ = 1;
  double price_ = 0;  // of a byte of copies of weights
  bool optimal_ = false;
  const Layout plain_;
};

}  // namespace quench::codegen
