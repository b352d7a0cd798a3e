// Choices that cost something one by one and two by two, made together.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace quench::codegen {

// Variables with a few values each. An assignment costs the sum over its variables and over the
// pairs of them that have costs together; infinite costs forbid.
class PairwiseProblem {
 public:
  // Returns the variable's number: 0, 1, ... `costs`: of each of its values.
  int AddVariable(std::vector<double> costs);
  // `costs` of [value of a][value of b]; added to those that the pair has. a != b.
  void AddCosts(int a, int b, std::span<const double> costs);

  size_t size() const { return own_.size(); }
  double CostOf(std::span<const int> values) const;

  struct Solution {
    std::vector<int> values;
    bool optimal = false;  // no assignment is cheaper
  };
  // The cheapest assignment, by eliminating one variable after another (bucket elimination: Dechter,
  // 1999), the one whose elimination needs the smallest table first. Where a table would have more
  // than `most` entries, the variable with the most neighbours keeps its value of `start`: then the
  // solution is the cheapest of those that agree with `start` there, and none costs more than it.
  Solution Solve(std::span<const int> start, size_t most = size_t{1} << 16) const;

 private:
  std::vector<std::vector<double>> own_;
  std::map<std::pair<int, int>, std::vector<double>> joint_;  // first < second; [first][second]
};

}  // namespace quench::codegen
