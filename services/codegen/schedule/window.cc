#include "services/codegen/schedule/window.h"

#include <algorithm>

#include "services/codegen/schedule/rebuild.h"

namespace quench::codegen {
namespace {

using loops::AddBinary;
using loops::AddInt;
using loops::BinaryOp;
using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Function;
using loops::LoopMark;
using loops::Stmt;
using loops::StmtId;
using loops::StmtKind;
using loops::Substitution;

// An innermost parallel loop around other loops: the windows.
bool HasWindows(const Function& f, StmtId id) {
  const Stmt& loop = At(f, id);
  if (loop.kind != StmtKind::kFor || loop.mark != LoopMark::kParallel ||
      loops::ConstantOf(f, loop.args[0]) != 0)
    return false;
  bool windows = false;
  for (StmtId inner : loops::StatementsUnder(f, loop.body)) {
    const Stmt& stmt = At(f, inner);
    if (stmt.kind != StmtKind::kFor) continue;
    if (stmt.mark == LoopMark::kParallel) return false;
    windows = true;
  }
  return windows;
}

// The clips of one loop and the range of its index in which they all give their constant.
class Interior {
 public:
  Interior(Function& f, StmtId loop) : f_(f), loop_(loop), end_(At(f, loop).args[1]) {
    first_ = AddInt(f_, 0);
    last_ = end_;
  }

  // False when the loop clips nothing.
  bool Find() {
    at_zero_.vars[At(f_, loop_).id] = AddInt(f_, 0);
    const std::vector<StmtId> body = At(f_, loop_).body;
    for (StmtId id : body) {
      const Stmt let = At(f_, id);
      if (let.kind != StmtKind::kLet) continue;
      TakeClip(let);
      at_zero_.vars[let.id] = loops::Substitute(f_, let.args[0], at_zero_);
    }
    first_ = AddBinary(f_, BinaryOp::kMin, first_, end_);
    last_ = AddBinary(f_, BinaryOp::kMax, last_, first_);
    return !clips_.vars.empty();
  }

  ExprId first() const { return first_; }
  ExprId last() const { return last_; }

  // The loop's body with the clips resolved, for another index.
  std::vector<StmtId> Body(ExprId index) {
    Substitution substitution = clips_;
    substitution.vars[At(f_, loop_).id] = index;
    std::vector<StmtId> body;
    for (StmtId id : At(f_, loop_).body) {
      const bool clip = At(f_, id).kind == StmtKind::kLet && clips_.vars.count(At(f_, id).id) != 0;
      if (!clip) body.push_back(id);
    }
    return loops::Clone(f_, body, substitution);
  }

 private:
  // let v = min or max of an affine function of the index and something fixed.
  void TakeClip(const Stmt& let) {
    const Expr e = f_.exprs[static_cast<size_t>(let.args[0])];
    const bool max = e.kind == ExprKind::kBinary && e.binary == BinaryOp::kMax;
    if (!max && !(e.kind == ExprKind::kBinary && e.binary == BinaryOp::kMin)) return;
    if (e.type != DataType::kI64) return;
    const loops::LoopAnalysis analysis(f_, loop_);
    for (size_t side = 0; side < 2; ++side) {
      const auto slope = analysis.Stride(e.args[side]);
      if (!slope || *slope == 0 || !analysis.Invariant(e.args[1 - side])) continue;
      const ExprId offset = loops::Substitute(f_, e.args[side], at_zero_);
      const ExprId limit = loops::Substitute(f_, e.args[1 - side], at_zero_);
      Restrict(max, *slope, offset, limit);
      clips_.vars[let.id] = limit;
      return;
    }
  }

  // max(s i + o, c) = c iff s i + o <= c; min iff >=.
  void Restrict(bool max, int64_t slope, ExprId offset, ExprId limit) {
    const bool upper = max == (slope > 0);
    const int64_t steepness = slope > 0 ? slope : -slope;
    const ExprId distance = slope > 0 ? AddBinary(f_, BinaryOp::kSub, limit, offset)
                                      : AddBinary(f_, BinaryOp::kSub, offset, limit);
    if (upper) {
      const ExprId bound = AddBinary(f_, BinaryOp::kFloorDiv, distance, AddInt(f_, steepness));
      last_ =
          AddBinary(f_, BinaryOp::kMin, last_, AddBinary(f_, BinaryOp::kAdd, bound, AddInt(f_, 1)));
    } else {
      const ExprId up = AddBinary(f_, BinaryOp::kAdd, distance, AddInt(f_, steepness - 1));
      first_ = AddBinary(f_, BinaryOp::kMax, first_,
                         AddBinary(f_, BinaryOp::kFloorDiv, up, AddInt(f_, steepness)));
    }
  }

  Function& f_;
  StmtId loop_;
  ExprId end_, first_, last_;
  Substitution at_zero_;  // the loop's index and lets, at index 0
  Substitution clips_;    // lets that clip -> what they give inside
};

void SplitLoop(Function& f, StmtId parent, StmtId id) {
  Interior interior(f, id);
  if (!interior.Find()) return;
  const std::string name = f.vars[static_cast<size_t>(At(f, id).id)];
  const auto copy = [&](ExprId begin, ExprId end, bool inside) {
    const ExprId index = loops::AddVar(f, name);
    Substitution renamed;
    renamed.vars[At(f, id).id] = index;
    const std::vector<StmtId> original = At(f, id).body;
    Stmt loop = At(f, id);
    loop.body = inside ? interior.Body(index) : loops::Clone(f, original, renamed);
    loop.id = f.exprs[static_cast<size_t>(index)].id;
    loop.args = {begin, end};
    return loops::AddStmt(f, std::move(loop));
  };
  const StmtId before = copy(At(f, id).args[0], interior.first(), false);
  const StmtId inside = copy(interior.first(), interior.last(), true);
  f.stmts[static_cast<size_t>(id)].args[0] = interior.last();
  std::vector<StmtId>& body = f.stmts[static_cast<size_t>(parent)].body;
  const auto place = std::find(body.begin(), body.end(), id);
  body.insert(place, {before, inside});
}

}  // namespace

void SplitWindows(Function& function) {
  for (StmtId parent : loops::StatementsUnder(function, function.body)) {
    const std::vector<StmtId> children = At(function, parent).body;
    for (StmtId id : children) {
      if (HasWindows(function, id)) SplitLoop(function, parent, id);
    }
  }
  FoldConstants(function);
}

}  // namespace quench::codegen
