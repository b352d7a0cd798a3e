// Choices made together: as cheap as trying all.
#include "services/codegen/plan/pairwise.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace quench::codegen::pairwise_test {
namespace {

struct Drawn {
  PairwiseProblem problem;
  std::vector<int> sizes;
};

// Costs are whole numbers, some forbidden; the first value of each variable is always allowed.
Drawn Draw(std::mt19937& random, int variables, int pairs) {
  Drawn drawn;
  for (int v = 0; v < variables; ++v) {
    drawn.sizes.push_back(1 + static_cast<int>(random() % 3));
    std::vector<double> costs;
    for (int i = 0; i < drawn.sizes.back(); ++i)
      costs.push_back(static_cast<double>(random() % 50));
    drawn.problem.AddVariable(std::move(costs));
  }
  for (int p = 0; p < pairs; ++p) {
    const int a = static_cast<int>(random() % static_cast<unsigned>(variables));
    const int b = static_cast<int>(random() % static_cast<unsigned>(variables));
    if (a == b) continue;
    std::vector<double> costs;
    for (int i = 0; i < drawn.sizes[static_cast<size_t>(a)]; ++i) {
      for (int j = 0; j < drawn.sizes[static_cast<size_t>(b)]; ++j) {
        costs.push_back(i + j > 0 && random() % 8 == 0 ? std::numeric_limits<double>::infinity()
                                                       : static_cast<double>(random() % 50));
      }
    }
    drawn.problem.AddCosts(a, b, costs);
  }
  return drawn;
}

double LeastOfAll(const Drawn& drawn) {
  std::vector<int> values(drawn.sizes.size(), 0);
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    least = std::min(least, drawn.problem.CostOf(values));
    size_t i = 0;
    while (i < values.size() && ++values[i] == drawn.sizes[i]) values[i++] = 0;
    if (i == values.size()) return least;
  }
}

TEST(PairwiseProblem, NothingIsCheaperThanTheSolution) {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    const int variables = 1 + static_cast<int>(random() % 8);
    const Drawn drawn = Draw(random, variables, static_cast<int>(random() % 16));
    const std::vector<int> start(drawn.sizes.size(), 0);
    const PairwiseProblem::Solution solution = drawn.problem.Solve(start);
    EXPECT_TRUE(solution.optimal);
    EXPECT_EQ(drawn.problem.CostOf(solution.values), LeastOfAll(drawn)) << "round " << round;
  }
}

// Tables are bounded: then the start is improved on, and whether that is the best is not known.
TEST(PairwiseProblem, WithoutRoomItIsNeverWorseThanItsStart) {
  std::mt19937 random(5);
  int better = 0, unknown = 0;
  for (int round = 0; round < 200; ++round) {
    const Drawn drawn = Draw(random, 9, 30);
    const std::vector<int> start(drawn.sizes.size(), 0);
    const PairwiseProblem::Solution solution = drawn.problem.Solve(start, 4);
    const double before = drawn.problem.CostOf(start),
                 after = drawn.problem.CostOf(solution.values);
    EXPECT_LE(after, before) << "round " << round;
    if (solution.optimal) {
      EXPECT_EQ(after, LeastOfAll(drawn)) << "round " << round;
    }
    better += after < before;
    unknown += !solution.optimal;
  }
  EXPECT_GT(better, 100);
  EXPECT_GT(unknown, 100);
}

// A chain of a thousand, as long networks are, and a star that no table holds.
TEST(PairwiseProblem, LargeProblems) {
  PairwiseProblem chain;
  constexpr int kLong = 1000;
  for (int v = 0; v < kLong; ++v) chain.AddVariable({1, 0});
  for (int v = 1; v < kLong; ++v) chain.AddCosts(v - 1, v, std::vector<double>{0, 3, 3, 0});
  chain.AddCosts(0, kLong - 1, std::vector<double>{0, 0, 0, 0});
  const std::vector<int> zeros(kLong, 0);
  const PairwiseProblem::Solution all = chain.Solve(zeros);
  EXPECT_TRUE(all.optimal);
  EXPECT_EQ(all.values, std::vector<int>(kLong, 1));

  PairwiseProblem dense;
  constexpr int kMany = 40;
  for (int v = 0; v < kMany; ++v) dense.AddVariable({0, 1});
  for (int a = 0; a < kMany; ++a) {
    for (int b = a + 1; b < kMany; ++b) dense.AddCosts(a, b, std::vector<double>{1, 0, 0, 1});
  }
  const std::vector<int> start(kMany, 0);
  const PairwiseProblem::Solution some = dense.Solve(start);
  EXPECT_FALSE(some.optimal);
  EXPECT_LT(dense.CostOf(some.values), dense.CostOf(start));
}

}  // namespace
}  // namespace quench::codegen::pairwise_test
