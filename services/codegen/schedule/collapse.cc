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

// True when a buffer that would be merged is accessed outside of the loops too: its other accesses
// would have to be merged with it.
bool AccessedElsewhere(const Function& f, StmtId inner_id, std::span<const int> axes) {
  std::vector<int> inside(f.buffers.size()), total(f.buffers.size());
  for (const loops::Access& access : loops::Accesses(f, At(f, inner_id).body))
    ++inside[static_cast<size_t>(access.buffer)];
  for (const loops::Access& access : loops::Accesses(f, f.body))
    ++total[static_cast<size_t>(access.buffer)];
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] >= 0 && inside[i] != total[i]) return true;
  }
  return false;
}

// Makes two nested loops one, over the dims of the buffers that they index together.
class Merger {
 public:
  // `axes` are MergeAxes'. The loops are those of `from`.
  Merger(const Function& from, StmtId outer_id, StmtId inner_id, std::vector<int> axes)
      : base_(from), outer_id_(outer_id), inner_id_(inner_id), axes_(std::move(axes)) {
    outer_ = At(base_, outer_id).id;
    inner_ = At(base_, inner_id).id;
    merged_ = static_cast<VarId>(base_.vars.size());
    base_.vars.push_back(base_.vars[static_cast<size_t>(outer_)] +
                         base_.vars[static_cast<size_t>(inner_)]);
  }

  // Nothing where something else reads one of the two indices. The dims at `dims`, by buffer, are
  // merged as well.
  std::optional<Function> Run(std::span<const StmtId> fill, const std::vector<int>& dims) {
    MergeLoads();
    for (StmtId id : loops::StatementsUnder(f_, At(f_, inner_id_).body)) MergeStore(id, index_);
    for (StmtId id : loops::StatementsUnder(f_, fill)) MergeStore(id, loops::kNone);
    if (StillUsed(f_, At(f_, inner_id_).body, outer_, inner_)) return std::nullopt;
    MergeDims(dims);
    const ExprId total = AddBinary(f_, BinaryOp::kMul, At(f_, outer_id_).args[1], extent_);
    Stmt& loop = f_.stmts[static_cast<size_t>(outer_id_)];
    loop.id = merged_;
    loop.args[1] = total;
    loop.body = At(f_, inner_id_).body;
    return std::move(f_);
  }

 private:
  int AxisOfBuffer(BufferId id) const { return axes_[static_cast<size_t>(id)]; }

  // The merged index, an expression that is added when it is needed first.
  ExprId Index(Function& out) {
    if (index_ == loops::kNone) {
      Expr e;
      e.kind = ExprKind::kVar;
      e.id = merged_;
      index_ = AddExpr(out, e);
    }
    return index_;
  }

  // Extents may have larger ids than the loads that need them: their trees are copied on demand.
  ExprId CopyTree(Function& out, ExprId id) const {
    Expr e = base_.exprs[static_cast<size_t>(id)];
    for (ExprId& arg : e.args) arg = CopyTree(out, arg);
    return AddExpr(out, std::move(e));
  }

  void MergeLoads() {
    const std::vector<bool> live = Reachable(base_, At(base_, inner_id_).body);
    const ExprId extent = At(base_, inner_id_).args[1];
    size_t position = 0;
    Rebuilder rebuilder(base_);
    f_ = rebuilder.Run([&](Function& out, const Expr& copy) -> std::optional<ExprId> {
      const size_t at = position++;
      if (copy.kind != ExprKind::kLoad || AxisOfBuffer(copy.id) < 0 || !live[at])
        return std::nullopt;
      Expr load = copy;
      load.args = MergeIndices(out, copy.args, AxisOfBuffer(copy.id), CopyTree(out, extent),
                               Index(out), outer_, inner_);
      return AddExpr(out, std::move(load));
    });
    Index(f_);
    extent_ = rebuilder.Mapped(extent);
  }

  void MergeStore(StmtId id, ExprId index) {
    if (At(f_, id).kind != StmtKind::kStore || AxisOfBuffer(At(f_, id).id) < 0) return;
    const std::vector<ExprId> old(At(f_, id).args.begin() + 1, At(f_, id).args.end());
    const std::vector<ExprId> indices =
        MergeIndices(f_, old, AxisOfBuffer(At(f_, id).id), extent_, index, outer_, inner_);
    Stmt& store = f_.stmts[static_cast<size_t>(id)];
    store.args.resize(1);
    store.args.insert(store.args.end(), indices.begin(), indices.end());
  }

  void MergeDims(const std::vector<int>& axes) {
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] < 0) continue;
      const std::vector<ExprId> dims = f_.buffers[i].dims;
      const auto d = static_cast<size_t>(axes[i]);
      const ExprId product = AddBinary(f_, BinaryOp::kMul, dims[d], dims[d + 1]);
      f_.buffers[i].dims[d] = product;
      f_.buffers[i].dims.erase(f_.buffers[i].dims.begin() + axes[i] + 1);
    }
  }

  Function base_, f_;
  const StmtId outer_id_, inner_id_;
  const std::vector<int> axes_;
  VarId outer_, inner_, merged_;
  ExprId index_ = loops::kNone;   // of the merged loop
  ExprId extent_ = loops::kNone;  // of the inner loop: the size of a merged buffer's minor dim
};

std::optional<Function> Collapse(const Function& from, StmtId outer_id, StmtId inner_id,
                                 std::span<const StmtId> fill) {
  auto axes = MergeAxes(from, outer_id, inner_id);
  if (!axes || AccessedElsewhere(from, inner_id, *axes)) return std::nullopt;
  return Merger(from, outer_id, inner_id, *axes).Run(fill, *axes);
}

bool ReadsVar(const Function& f, ExprId id, VarId var) {
  const Expr& e = f.exprs[static_cast<size_t>(id)];
  if (e.kind == ExprKind::kVar && e.id == var) return true;
  return std::any_of(e.args.begin(), e.args.end(),
                     [&](ExprId arg) { return ReadsVar(f, arg, var); });
}

bool IsReductionFromZero(const Stmt& stmt, const Function& f) {
  return stmt.kind == StmtKind::kFor && stmt.mark == LoopMark::kReduce &&
         loops::ConstantOf(f, stmt.args[0]) == 0;
}

bool AreOneReduction(const Function& f, const Stmt& outer, const Stmt& inner) {
  const auto same = [](const loops::Reduction& a, const loops::Reduction& b) {
    return a.local == b.local && a.op == b.op;
  };
  return IsReductionFromZero(outer, f) && IsReductionFromZero(inner, f) &&
         std::equal(outer.reductions.begin(), outer.reductions.end(), inner.reductions.begin(),
                    inner.reductions.end(), same);
}

// Two loops of a perfect nest, both from zero and over the same extents each time.
bool AreNeighbours(const Function& f, StmtId id, bool reductions) {
  const Stmt& outer = At(f, id);
  if (outer.kind != StmtKind::kFor || outer.body.size() != 1) return false;
  const Stmt& inner = At(f, outer.body[0]);
  const bool parallel = IsParallelFromZero(outer, f) && IsParallelFromZero(inner, f);
  if (!parallel && !(reductions && AreOneReduction(f, outer, inner))) return false;
  return !ReadsVar(f, inner.args[1], outer.id);
}

bool CollapseOne(Function& function, std::span<const StmtId> fill, bool reductions) {
  for (StmtId id : loops::StatementsUnder(function, function.body)) {
    if (!AreNeighbours(function, id, reductions)) continue;
    if (auto collapsed = Collapse(function, id, At(function, id).body[0], fill)) {
      function = *std::move(collapsed);
      return true;
    }
  }
  return false;
}

struct Pair {
  StmtId outer, inner;
  std::vector<int> axes;
};

// The innermost two loops of each nest that has two or more.
std::vector<Pair> InnermostPairs(const Function& f) {
  std::vector<Pair> pairs;
  for (StmtId id : loops::StatementsUnder(f, f.body)) {
    if (!AreNeighbours(f, id, /*reductions=*/true)) continue;
    const StmtId inner = At(f, id).body[0];
    if (AreNeighbours(f, inner, /*reductions=*/true)) continue;
    if (auto axes = MergeAxes(f, id, inner)) pairs.push_back({id, inner, *std::move(axes)});
  }
  return pairs;
}

// The axis of each buffer at which all pairs merge it; nothing where they differ, or where others use it.
std::optional<std::vector<int>> CommonAxes(const Function& f, const std::vector<Pair>& pairs) {
  std::vector<int> axes(f.buffers.size(), -1), inside(f.buffers.size()), total(f.buffers.size());
  for (const loops::Access& access : loops::Accesses(f, f.body))
    ++total[static_cast<size_t>(access.buffer)];
  for (const Pair& pair : pairs) {
    for (const loops::Access& access : loops::Accesses(f, At(f, pair.inner).body)) {
      const auto buffer = static_cast<size_t>(access.buffer);
      if (pair.axes[buffer] < 0) continue;
      if (axes[buffer] >= 0 && axes[buffer] != pair.axes[buffer]) return std::nullopt;
      axes[buffer] = pair.axes[buffer];
      ++inside[buffer];
    }
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] >= 0 && inside[i] != total[i]) return std::nullopt;
  }
  return axes;
}

// Nests one after the other that go through the same buffers (a row's mean, variance and result).
bool CollapseTogether(Function& function) {
  const std::vector<Pair> pairs = InnermostPairs(function);
  const auto axes = CommonAxes(function, pairs);
  if (pairs.size() < 2 || !axes) return false;
  Function merged = function;
  for (const Pair& pair : pairs) {
    const bool last = &pair == &pairs.back();
    auto next = Merger(merged, pair.outer, pair.inner, pair.axes)
                    .Run({}, last ? *axes : std::vector<int>());
    if (!next) return false;
    merged = *std::move(next);
  }
  function = std::move(merged);
  return true;
}

}  // namespace

void CollapseLoops(Function& function, std::span<const StmtId> fill, bool reductions) {
  while (CollapseOne(function, fill, reductions) ||
         (reductions && fill.empty() && CollapseTogether(function))) {
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
