// Rules that readers set for the elements of the values that they read.
#pragma once

#include <span>
#include <vector>

#include "common/runner/draw.h"

namespace quench {

// Facts known of a graph's values before it runs, and rules for their elements.
class DrawRules {
 public:
  // Contents of a constant, or of sizes that are known; nullopt where they are not.
  using Contents = std::vector<std::optional<int64_t>>;

  // `slots`: values of the symbols, -1 for those that only a run tells.
  DrawRules(const Graph& graph, std::span<const int64_t> slots, Random& random)
      : graph_(graph), slots_(slots), random_(random), rules_(graph.values.size()) {}

  // Adds what the readers of each value want, from the outputs back to the inputs.
  void Find();

  DrawRule& of(ValueId id) { return rules_[static_cast<size_t>(id)]; }
  // The rule and another one: both, where they can be met at once.
  void Add(ValueId id, const DrawRule& rule);
  void AddCells(ValueId id, std::vector<DrawRule::Cell> cells);
  void AddRange(ValueId id, int64_t low, int64_t high);
  void AddReal(ValueId id, double low, double high);

  const Graph& graph() const { return graph_; }
  Random& random() { return random_; }
  // Dims of a value, -1 for those that only a run tells; none where not even the rank is known.
  std::vector<int64_t> DimsOf(ValueId id) const;
  // -1 where it is not known.
  int64_t SizeOf(ValueId id, int64_t axis) const;
  int64_t ElementsOf(ValueId id) const;
  // The elements of a list or a single number, each where it can be told. Empty: not even how many.
  Contents ContentsOf(ValueId id) const;

 private:
  void PassBack(const Node& node);
  void PassThroughExtremum(const Node& node, const DrawRule::Cell& wanted);
  void PassThroughArithmetic(const Node& node);
  void PassToMask(const Node& node);
  void PassIntoBodies(const Node& node);
  std::optional<DrawRule::Cell> KnownRange(ValueId id) const;

  const Graph& graph_;
  std::span<const int64_t> slots_;
  Random& random_;
  std::vector<DrawRule> rules_;
};

// Adds what the node wants of its operands: indices that are there, axes, sizes. Draws those that must
// fit one another.
void AddOperandRules(const Node& node, DrawRules& rules);

}  // namespace quench
