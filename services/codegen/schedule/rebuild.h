// Rebuilds a loops function expression by expression: the base of every transformation of a
// schedule.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/loops/analysis.h"
#include "common/loops/loops.h"

namespace quench::codegen {

// Copies the expressions of `from` in order. `rewrite` may supply another expression in place of
// one whose arguments have been copied already; nothing keeps the copy. Statements keep their ids.
class Rebuilder {
 public:
  using Rewrite =
      std::function<std::optional<loops::ExprId>(loops::Function& out, const loops::Expr& copy)>;

  explicit Rebuilder(const loops::Function& from);
  // The result; `map` gives the new id of every old expression.
  loops::Function Run(const Rewrite& rewrite);
  loops::ExprId Mapped(loops::ExprId old) const { return map_[static_cast<size_t>(old)]; }

 private:
  const loops::Function& from_;
  std::vector<loops::ExprId> map_;
};

loops::ExprId AddExpr(loops::Function& function, loops::Expr expr);
// FloorDiv and FloorMod by a constant, with multiples of it taken out of sums.
loops::ExprId AddFloorDiv(loops::Function& function, loops::ExprId value, int64_t divisor);
loops::ExprId AddFloorMod(loops::Function& function, loops::ExprId value, int64_t divisor);
// Structural equality of two expressions.
bool SameExpr(const loops::Function& function, loops::ExprId a, loops::ExprId b);
// Folds constants and neutral operands of integer arithmetic everywhere.
void FoldConstants(loops::Function& function);
// Elements between neighbouring iterations of the analysed loop at an access; nothing when that is
// not a constant.
std::optional<int64_t> ElementStep(const loops::Function& function,
                                   const loops::LoopAnalysis& analysis, loops::BufferId buffer,
                                   std::span<const loops::ExprId> indices);
// Largest trip count of a loop that its bounds reveal.
std::optional<int64_t> MaxTrips(const loops::Function& function, const loops::Stmt& loop);
// Expressions reachable from the body (and `extra`), by id.
std::vector<bool> Reachable(const loops::Function& function, std::span<const loops::StmtId> body);

}  // namespace quench::codegen
