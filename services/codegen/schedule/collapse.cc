#include "services/codegen/schedule/collapse.h"

#include <algorithm>
#include <map>
#include <optional>

#include "services/codegen/schedule/rebuild.h"

namespace quench::codegen {
namespace {

using loops::AddBinary;
using loops::AddInt;
using loops::BinaryOp;
using loops::BufferId;
using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Function;
using loops::LoopAnalysis;
using loops::LoopMark;
using loops::Stmt;
using loops::StmtId;
using loops::StmtKind;
using loops::VarId;

bool IsParallelFromZero(const Stmt& stmt, const Function& f) {
  return stmt.kind == StmtKind::kFor && stmt.mark == LoopMark::kParallel &&
         loops::ConstantOf(f, stmt.args[0]) == 0;
}

// Where the two loops index a buffer: dims `axis` (outer) and `axis` + 1 (inner), each with
// coefficient 1. nullopt: not like that; -1: not at all.
std::optional<int> AxisOf(const loops::Access& access, const LoopAnalysis& outer,
                          const LoopAnalysis& inner) {
  int axis = -1;
  for (size_t d = 0; d < access.indices.size(); ++d) {
    const auto by_outer = outer.Stride(access.indices[d]);
    const auto by_inner = inner.Stride(access.indices[d]);
    if (!by_outer || !by_inner) return std::nullopt;
    if (*by_outer == 0 && *by_inner == 0) continue;
    if (*by_outer == 1 && *by_inner == 0 && axis < 0 && d + 1 < access.indices.size() &&
        outer.Stride(access.indices[d + 1]) == 0 && inner.Stride(access.indices[d + 1]) == 1) {
      axis = static_cast<int>(d);
      ++d;
      continue;
    }
    return std::nullopt;
  }
  return axis;
}

// The axis at which each buffer is merged (-1: left alone), or nothing when the loops cannot be.
std::optional<std::vector<int>> MergeAxes(const Function& f, StmtId outer_id, StmtId inner_id) {
  const LoopAnalysis outer(f, outer_id), inner(f, inner_id);
  const ExprId extent = At(f, inner_id).args[1];
  std::vector<int> axes(f.buffers.size(), -2);
  for (const loops::Access& access : loops::Accesses(f, At(f, inner_id).body)) {
    const auto axis = AxisOf(access, outer, inner);
    int& known = axes[static_cast<size_t>(access.buffer)];
    if (!axis || (known != -2 && known != *axis)) return std::nullopt;
    known = *axis;
    if (*axis < 0) continue;
    const ExprId dim =
        f.buffers[static_cast<size_t>(access.buffer)].dims[static_cast<size_t>(*axis) + 1];
    if (!SameExpr(f, dim, extent)) return std::nullopt;
  }
  for (int& axis : axes) axis = std::max(axis, -1);
  return axes;
}

ExprId Merged(Function& f, ExprId major, ExprId minor, ExprId size) {
  return AddBinary(f, BinaryOp::kAdd, AddBinary(f, BinaryOp::kMul, major, size), minor);
}

// `id` with the two loops' indices set to zero: what remains of an index.
ExprId Rest(Function& f, ExprId id, VarId outer, VarId inner) {
  const Expr e = f.exprs[static_cast<size_t>(id)];
  if (e.kind == ExprKind::kVar && (e.id == outer || e.id == inner)) return AddInt(f, 0);
  if (e.kind != ExprKind::kBinary) return id;
  const ExprId a = Rest(f, e.args[0], outer, inner);
  const ExprId b = Rest(f, e.args[1], outer, inner);
  if (a == e.args[0] && b == e.args[1]) return id;
  return AddBinary(f, e.binary, a, b);
}

// True when the statements under `body` still read one of the variables.
bool StillUsed(const Function& f, std::span<const StmtId> body, VarId outer, VarId inner) {
  const std::vector<bool> live = Reachable(f, body);
  for (size_t i = 0; i < f.exprs.size(); ++i) {
    const Expr& e = f.exprs[i];
    if (live[i] && e.kind == ExprKind::kVar && (e.id == outer || e.id == inner)) return true;
  }
  return false;
}

// Indices of an access with dims `axis` and `axis` + 1 merged. `merged` is the new loop's index, or
// kNone outside the loops.
std::vector<ExprId> MergeIndices(Function& f, std::vector<ExprId> indices, int axis, ExprId size,
                                 ExprId merged, VarId outer, VarId inner) {
  const auto d = static_cast<size_t>(axis);
  ExprId index =
      Merged(f, Rest(f, indices[d], outer, inner), Rest(f, indices[d + 1], outer, inner), size);
  if (merged != loops::kNone) index = AddBinary(f, BinaryOp::kAdd, merged, index);
  indices[d] = index;
  indices.erase(indices.begin() + axis + 1);
  return indices;
}

std::optional<Function> Collapse(const Function& from, StmtId outer_id, StmtId inner_id,
                                 std::span<const StmtId> fill) {
  const auto axes = MergeAxes(from, outer_id, inner_id);
  if (!axes) return std::nullopt;
  // A merged buffer that is accessed elsewhere too would need its other accesses merged: leave
  // those alone.
  std::vector<int> inside(from.buffers.size()), total(from.buffers.size());
  for (const loops::Access& access : loops::Accesses(from, At(from, inner_id).body)) {
    ++inside[static_cast<size_t>(access.buffer)];
  }
  for (const loops::Access& access : loops::Accesses(from, from.body))
    ++total[static_cast<size_t>(access.buffer)];
  for (size_t i = 0; i < axes->size(); ++i) {
    if ((*axes)[i] >= 0 && inside[i] != total[i]) return std::nullopt;
  }
  const VarId outer = At(from, outer_id).id, inner = At(from, inner_id).id;
  Function base = from;
  const auto merged_var = static_cast<VarId>(base.vars.size());
  base.vars.push_back(base.vars[static_cast<size_t>(outer)] +
                      base.vars[static_cast<size_t>(inner)]);
  // The size of a merged buffer's minor dim, rebuilt before its first use.
  const std::vector<bool> live = Reachable(base, At(base, inner_id).body);
  ExprId merged = loops::kNone;
  size_t position = 0;
  Rebuilder rebuilder(base);
  const ExprId old_extent = At(base, inner_id).args[1];
  const auto merged_index = [&](Function& out) {
    if (merged == loops::kNone) {
      Expr e;
      e.kind = ExprKind::kVar;
      e.id = merged_var;
      merged = AddExpr(out, e);
    }
    return merged;
  };
  const auto axis_of = [&](BufferId id) { return (*axes)[static_cast<size_t>(id)]; };
  // Extents may have larger ids than the loads that need them: copy their trees on demand.
  const std::function<ExprId(Function&, ExprId)> copy_tree = [&](Function& out,
                                                                 ExprId id) -> ExprId {
    Expr e = base.exprs[static_cast<size_t>(id)];
    for (ExprId& arg : e.args) arg = copy_tree(out, arg);
    return AddExpr(out, std::move(e));
  };
  Function f = rebuilder.Run([&](Function& out, const Expr& copy) -> std::optional<ExprId> {
    const size_t at = position++;
    if (copy.kind != ExprKind::kLoad || axis_of(copy.id) < 0 || !live[at]) return std::nullopt;
    Expr load = copy;
    load.args = MergeIndices(out, copy.args, axis_of(copy.id), copy_tree(out, old_extent),
                             merged_index(out), outer, inner);
    return AddExpr(out, std::move(load));
  });
  merged_index(f);
  const ExprId extent = rebuilder.Mapped(old_extent);
  const auto merge_store = [&](StmtId id, ExprId index) {
    if (At(f, id).kind != StmtKind::kStore || axis_of(At(f, id).id) < 0) return;
    const std::vector<ExprId> old(At(f, id).args.begin() + 1, At(f, id).args.end());
    const std::vector<ExprId> indices =
        MergeIndices(f, old, axis_of(At(f, id).id), extent, index, outer, inner);
    Stmt& store = f.stmts[static_cast<size_t>(id)];
    store.args.resize(1);
    store.args.insert(store.args.end(), indices.begin(), indices.end());
  };
  for (StmtId id : loops::StatementsUnder(f, At(f, inner_id).body)) merge_store(id, merged);
  for (StmtId id : loops::StatementsUnder(f, fill)) merge_store(id, loops::kNone);
  if (StillUsed(f, At(f, inner_id).body, outer, inner)) return std::nullopt;
  for (size_t i = 0; i < f.buffers.size(); ++i) {
    if ((*axes)[i] < 0) continue;
    std::vector<ExprId>& dims = f.buffers[i].dims;
    const auto d = static_cast<size_t>((*axes)[i]);
    const ExprId product = AddBinary(f, BinaryOp::kMul, dims[d], dims[d + 1]);
    f.buffers[i].dims[d] = product;
    f.buffers[i].dims.erase(f.buffers[i].dims.begin() + (*axes)[i] + 1);
  }
  const ExprId total_extent = AddBinary(f, BinaryOp::kMul, At(f, outer_id).args[1], extent);
  Stmt& loop = f.stmts[static_cast<size_t>(outer_id)];
  loop.id = merged_var;
  loop.args[1] = total_extent;
  loop.body = At(f, inner_id).body;
  return f;
}

bool ReadsVar(const Function& f, ExprId id, VarId var) {
  const Expr& e = f.exprs[static_cast<size_t>(id)];
  if (e.kind == ExprKind::kVar && e.id == var) return true;
  return std::any_of(e.args.begin(), e.args.end(),
                     [&](ExprId arg) { return ReadsVar(f, arg, var); });
}

bool CollapseOne(Function& function, std::span<const StmtId> fill) {
  for (StmtId id : loops::StatementsUnder(function, function.body)) {
    const Stmt& outer = At(function, id);
    if (!IsParallelFromZero(outer, function) || outer.body.size() != 1) continue;
    const Stmt& inner = At(function, outer.body[0]);
    if (!IsParallelFromZero(inner, function) || ReadsVar(function, inner.args[1], outer.id))
      continue;
    if (auto collapsed = Collapse(function, id, outer.body[0], fill)) {
      function = *std::move(collapsed);
      return true;
    }
  }
  return false;
}

}  // namespace

void CollapseLoops(Function& function, std::span<const StmtId> fill) {
  while (CollapseOne(function, fill)) {
  }
}

namespace {

// Replaces `id` in `body` (at any depth) by `replacement`.
bool ReplaceIn(Function& f, std::vector<StmtId>& body, StmtId id,
               const std::vector<StmtId>& replacement) {
  const auto place = std::find(body.begin(), body.end(), id);
  if (place != body.end()) {
    const auto at = body.erase(place);
    body.insert(at, replacement.begin(), replacement.end());
    return true;
  }
  for (StmtId child : body) {
    Stmt& stmt = f.stmts[static_cast<size_t>(child)];
    if (ReplaceIn(f, stmt.body, id, replacement) || ReplaceIn(f, stmt.otherwise, id, replacement))
      return true;
  }
  return false;
}

bool RunsOnce(const Function& f, const Stmt& stmt) {
  if (stmt.kind != StmtKind::kFor) return false;
  const auto begin = loops::ConstantOf(f, stmt.args[0]), end = loops::ConstantOf(f, stmt.args[1]);
  return begin && end && *end - *begin == 1;
}

}  // namespace

void DropUnitLoops(Function& function) {
  for (StmtId id : loops::StatementsUnder(function, function.body)) {
    if (!RunsOnce(function, At(function, id))) continue;
    const Stmt loop = At(function, id);
    const int64_t index = *loops::ConstantOf(function, loop.args[0]);
    Function f =
        Rebuilder(function).Run([&](Function& out, const Expr& copy) -> std::optional<ExprId> {
          if (copy.kind == ExprKind::kVar && copy.id == loop.id) return AddInt(out, index);
          const bool folds = copy.kind == ExprKind::kBinary && copy.type == DataType::kI64 &&
                             !(copy.binary >= BinaryOp::kEq);
          if (folds) return AddBinary(out, copy.binary, copy.args[0], copy.args[1]);
          return std::nullopt;
        });
    ReplaceIn(f, f.body, id, loop.body);
    function = std::move(f);
  }
}

namespace {

// How often the expressions of the statements under `body` read a variable; shared subexpressions
// count once per statement.
int CountReads(const Function& f, std::span<const StmtId> body, VarId var) {
  int count = 0;
  for (StmtId id : loops::StatementsUnder(f, body)) {
    for (ExprId arg : At(f, id).args) count += ReadsVar(f, arg, var) ? 1 : 0;
  }
  return count;
}

// `let v = var (op) d`: d.
std::optional<ExprId> DividedBy(const Function& f, const Stmt& let, VarId var, bool quotient) {
  if (let.kind != StmtKind::kLet) return std::nullopt;
  const Expr& e = f.exprs[static_cast<size_t>(let.args[0])];
  if (e.kind != ExprKind::kBinary) return std::nullopt;
  const bool fits = quotient ? e.binary == BinaryOp::kDiv || e.binary == BinaryOp::kFloorDiv
                             : e.binary == BinaryOp::kRem || e.binary == BinaryOp::kFloorMod;
  const Expr& dividend = f.exprs[static_cast<size_t>(e.args[0])];
  if (!fits || dividend.kind != ExprKind::kVar || dividend.id != var || ReadsVar(f, e.args[1], var))
    return std::nullopt;
  return e.args[1];
}

// The innermost loop of the perfect parallel nest that starts at `loop`.
StmtId Innermost(const Function& f, StmtId loop) {
  while (At(f, loop).body.size() == 1 && IsParallelFromZero(At(f, At(f, loop).body[0]), f))
    loop = At(f, loop).body[0];
  return loop;
}

bool SplitOne(Function& f, StmtId id) {
  const StmtId innermost = Innermost(f, id);
  const std::vector<StmtId> body = At(f, innermost).body;
  const VarId var = At(f, id).id;
  if (body.size() < 3 || CountReads(f, std::span(&id, 1), var) != 2) return false;
  const auto size = DividedBy(f, At(f, body[0]), var, false);
  const auto same = DividedBy(f, At(f, body[1]), var, true);
  if (!size || !same || !SameExpr(f, *size, *same)) return false;
  const auto known = loops::ConstantOf(f, *size), total = loops::ConstantOf(f, At(f, id).args[1]);
  if (known && *known < 1) return false;
  const VarId minor = At(f, body[0]).id, major = At(f, body[1]).id;
  const ExprId majors = known && total
                            ? AddInt(f, *total / *known)
                            : AddBinary(f, BinaryOp::kFloorDiv, At(f, id).args[1], *size);
  f.stmts[static_cast<size_t>(innermost)].body.erase(
      f.stmts[static_cast<size_t>(innermost)].body.begin(),
      f.stmts[static_cast<size_t>(innermost)].body.begin() + 2);
  Stmt inner = At(f, id);
  inner.id = minor;
  inner.args[1] = *size;
  const StmtId inner_id = loops::AddStmt(f, std::move(inner));
  Stmt& outer = f.stmts[static_cast<size_t>(id)];
  outer.id = major;
  outer.args[1] = majors;
  outer.body = {inner_id};
  return true;
}

}  // namespace

void SplitFlattenedLoops(Function& function) {
  for (StmtId id : loops::StatementsUnder(function, function.body)) {
    while (IsParallelFromZero(At(function, id), function) && SplitOne(function, id)) {
    }
  }
}

}  // namespace quench::codegen
