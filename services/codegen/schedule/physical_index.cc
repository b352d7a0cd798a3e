#include "services/codegen/schedule/physical_index.h"

#include <algorithm>
#include <numeric>

#include "common/base/status.h"
#include "services/codegen/schedule/rebuild.h"
#include "services/codegen/schedule/tasks.h"

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
using loops::Stmt;
using loops::StmtId;
using loops::StmtKind;

absl::Status CheckLayout(const Layout& layout, const loops::Buffer& buffer) {
  const int rank = static_cast<int>(buffer.dims.size());
  std::vector<int> order = layout.order;
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int>(i) || static_cast<int>(order.size()) != rank) {
      return Internal("buffer `{}`: layout order is not a permutation of {} axes", buffer.name,
                      rank);
    }
  }
  if (layout.blocked_axis >= rank || layout.block < 1) {
    return Internal("buffer `{}`: layout {} does not fit rank {}", buffer.name, layout.ToString(),
                    rank);
  }
  return absl::OkStatus();
}

// Everything about one laid out buffer.
struct Placement {
  const Layout* layout = nullptr;
  std::vector<int> order;
  int rank = 0;

  bool blocked(int axis) const { return axis == layout->blocked_axis && layout->block > 1; }
};

Placement Place(const Layout& layout, int rank) {
  Placement p{&layout, layout.order, rank};
  if (p.order.empty()) {
    p.order.resize(static_cast<size_t>(rank));
    std::iota(p.order.begin(), p.order.end(), 0);
  }
  return p;
}

ExprId Plus(Function& f, ExprId a, int64_t b) {
  return AddBinary(f, BinaryOp::kAdd, a, AddInt(f, b));
}

std::vector<ExprId> PhysicalDims(Function& f, const Placement& p, std::span<const ExprId> dims) {
  std::vector<ExprId> physical;
  for (int axis : p.order) {
    ExprId size = dims[static_cast<size_t>(axis)];
    if (p.blocked(axis)) size = AddFloorDiv(f, Plus(f, size, p.layout->block - 1), p.layout->block);
    physical.push_back(size);
  }
  if (p.layout->blocked_axis >= 0 && p.layout->block > 1)
    physical.push_back(AddInt(f, p.layout->block));
  return physical;
}

std::vector<ExprId> PhysicalIndices(Function& f, const Placement& p,
                                    std::span<const ExprId> indices) {
  std::vector<ExprId> physical;
  ExprId lane = loops::kNone;
  for (int axis : p.order) {
    const ExprId index = indices[static_cast<size_t>(axis)];
    if (!p.blocked(axis)) {
      physical.push_back(index);
      continue;
    }
    physical.push_back(AddFloorDiv(f, index, p.layout->block));
    lane = AddFloorMod(f, index, p.layout->block);
  }
  if (lane != loops::kNone) physical.push_back(lane);
  return physical;
}

StmtId AddLoop(Function& f, ExprId begin, ExprId end, loops::VarId var, std::vector<StmtId> body) {
  Stmt loop;
  loop.kind = StmtKind::kFor;
  loop.id = var;
  loop.args = {begin, end};
  loop.body = std::move(body);
  return loops::AddStmt(f, std::move(loop));
}

// for every physical index (the dims before `fixed` and after it over their whole range, `fixed` in
// [begin, end)): store.
StmtId FillLoops(Function& f, BufferId buffer, std::span<const ExprId> dims, size_t fixed,
                 ExprId begin, ExprId end, ExprId value) {
  std::vector<ExprId> vars;
  for (size_t d = 0; d < dims.size(); ++d) vars.push_back(loops::AddVar(f, "fill"));
  Stmt store;
  store.kind = StmtKind::kStore;
  store.id = buffer;
  store.args = {value};
  store.args.insert(store.args.end(), vars.begin(), vars.end());
  StmtId inner = loops::AddStmt(f, std::move(store));
  for (size_t d = dims.size(); d-- > 0;) {
    const loops::VarId var = f.exprs[static_cast<size_t>(vars[d])].id;
    const ExprId from = d == fixed ? begin : AddInt(f, 0);
    const ExprId to = d == fixed ? end : dims[d];
    inner = AddLoop(f, from, to, var, {inner});
  }
  return inner;
}

ExprId Zero(Function& f, DataType storage) {
  Expr e;
  e.kind = IsFloat(storage) ? ExprKind::kFloat : ExprKind::kInt;
  e.type = storage;
  return AddExpr(f, std::move(e));
}

// Lanes beyond the end of the blocked axis hold 0.
void AddFill(Function& f, BufferId buffer, const Placement& p, std::span<const ExprId> logical,
             std::vector<StmtId>& fill) {
  const std::vector<ExprId> dims = f.buffers[static_cast<size_t>(buffer)].dims;
  const DataType dtype = f.buffers[static_cast<size_t>(buffer)].dtype;
  if (p.layout->blocked_axis < 0 || p.layout->block <= 1) return;
  const ExprId size = logical[static_cast<size_t>(p.layout->blocked_axis)];
  const auto known = loops::ConstantOf(f, size);
  if (known && *known % p.layout->block == 0) return;
  // Only in the last block: for lane in [size mod block, block), in every block that begins beyond
  // size - block.
  const auto place =
      std::find(p.order.begin(), p.order.end(), p.layout->blocked_axis) - p.order.begin();
  const auto d = static_cast<size_t>(place);
  const ExprId blocks = dims[d];
  const ExprId last = AddFloorDiv(f, size, p.layout->block);
  const StmtId loops = FillLoops(f, buffer, dims, d, last, blocks, Zero(f, dtype));
  // The innermost loop, over lanes, starts behind the last element.
  Stmt* inner = &f.stmts[static_cast<size_t>(loops)];
  while (f.stmts[static_cast<size_t>(inner->body[0])].kind == StmtKind::kFor) {
    inner = &f.stmts[static_cast<size_t>(inner->body[0])];
  }
  const auto inner_id = static_cast<size_t>(inner - f.stmts.data());
  const ExprId first_lane = AddFloorMod(f, size, p.layout->block);
  f.stmts[inner_id].args[0] = first_lane;
  fill.push_back(loops);
}

}  // namespace

absl::Status ApplyLayouts(std::span<const Layout> layouts, Schedule& schedule) {
  std::vector<Placement> placements(schedule.function.buffers.size());
  bool any = false;
  for (size_t i = 0; i < layouts.size() && i < placements.size(); ++i) {
    const loops::Buffer& buffer = schedule.function.buffers[i];
    QUENCH_RETURN_IF_ERROR(CheckLayout(layouts[i], buffer));
    if (buffer.role == loops::BufferRole::kScratch || layouts[i].row_major()) continue;
    placements[i] = Place(layouts[i], static_cast<int>(buffer.dims.size()));
    any = true;
  }
  if (!any) return absl::OkStatus();
  const auto laid_out = [&](BufferId id) {
    return placements[static_cast<size_t>(id)].layout != nullptr;
  };
  Function f = Rebuilder(schedule.function)
                   .Run([&](Function& out, const Expr& copy) -> std::optional<ExprId> {
                     if (copy.kind != ExprKind::kLoad || !laid_out(copy.id)) return std::nullopt;
                     Expr load = copy;
                     load.args =
                         PhysicalIndices(out, placements[static_cast<size_t>(copy.id)], copy.args);
                     return AddExpr(out, std::move(load));
                   });
  const size_t statements = f.stmts.size();
  for (size_t i = 0; i < statements; ++i) {
    if (f.stmts[i].kind != StmtKind::kStore || !laid_out(f.stmts[i].id)) continue;
    const Placement& p = placements[static_cast<size_t>(f.stmts[i].id)];
    const std::vector<ExprId> logical(f.stmts[i].args.begin() + 1, f.stmts[i].args.end());
    const std::vector<ExprId> physical = PhysicalIndices(f, p, logical);
    f.stmts[i].args.resize(1);
    f.stmts[i].args.insert(f.stmts[i].args.end(), physical.begin(), physical.end());
  }
  for (size_t i = 0; i < placements.size(); ++i) {
    if (placements[i].layout == nullptr) continue;
    const std::vector<ExprId> logical = f.buffers[i].dims;
    f.buffers[i].dims = PhysicalDims(f, placements[i], logical);
    if (f.buffers[i].role == loops::BufferRole::kOutput) {
      AddFill(f, static_cast<BufferId>(i), placements[i], logical, schedule.fill);
    }
  }
  schedule.function = std::move(f);
  return absl::OkStatus();
}

namespace {

// The divisors by which expressions divide the loop's index; only if there is one such divisor is
// the loop split.
std::optional<int64_t> BlockOf(const Function& f, const Stmt& loop) {
  std::optional<int64_t> block;
  const std::vector<bool> live = Reachable(f, loop.body);
  for (size_t i = 0; i < f.exprs.size(); ++i) {
    const Expr& e = f.exprs[i];
    if (!live[i] || e.kind != ExprKind::kBinary ||
        (e.binary != BinaryOp::kFloorDiv && e.binary != BinaryOp::kFloorMod))
      continue;
    const Expr& dividend = f.exprs[static_cast<size_t>(e.args[0])];
    const auto divisor = loops::ConstantOf(f, e.args[1]);
    if (dividend.kind != ExprKind::kVar || dividend.id != loop.id || !divisor || *divisor < 2)
      continue;
    if (block && *block != *divisor) return std::nullopt;
    block = divisor;
  }
  return block;
}

// The index of a loop, `c`, as `o` B + `l`, the block and the lane within it.
class SplitIndex {
 public:
  // Adds the variables of the block and of the lane to `base`, of whose variables `var` is c.
  SplitIndex(Function& base, loops::VarId var, int64_t block) : var_(var), block_(block) {
    // A copy: the names move when one is added.
    const std::string name = base.vars[static_cast<size_t>(var)];
    outer_var_ = AddVar(base, name + ".block");
    lane_var_ = AddVar(base, name + ".lane");
  }

  // c becomes o B + l; c / B becomes o, and c mod B becomes l.
  std::optional<ExprId> Rewrite(Function& out, const Expr& copy) {
    if (copy.kind == ExprKind::kVar && copy.id == var_) return Whole(out);
    if (copy.kind != ExprKind::kBinary || !IsWhole(out, copy.args[0]) ||
        loops::ConstantOf(out, copy.args[1]) != block_) {
      return std::nullopt;
    }
    if (copy.binary == BinaryOp::kFloorDiv) return outer_;
    if (copy.binary == BinaryOp::kFloorMod) return lane_;
    return std::nullopt;
  }

  loops::VarId outer_var() const { return outer_var_; }
  loops::VarId lane_var() const { return lane_var_; }
  // The first c of the block.
  ExprId Start(Function& out) const {
    return AddBinary(out, BinaryOp::kMul, outer_, AddInt(out, block_));
  }

 private:
  static loops::VarId AddVar(Function& f, std::string name) {
    f.vars.push_back(std::move(name));
    return static_cast<loops::VarId>(f.vars.size() - 1);
  }
  static ExprId AddRead(Function& out, loops::VarId var) {
    Expr e;
    e.kind = ExprKind::kVar;
    e.id = var;
    return AddExpr(out, e);
  }
  ExprId Whole(Function& out) {
    if (lane_ == loops::kNone) {
      outer_ = AddRead(out, outer_var_);
      lane_ = AddRead(out, lane_var_);
    }
    return AddBinary(out, BinaryOp::kAdd, Start(out), lane_);
  }
  bool IsWhole(const Function& f, ExprId id) const {
    const Expr& e = f.exprs[static_cast<size_t>(id)];
    return lane_ != loops::kNone && e.kind == ExprKind::kBinary && e.binary == BinaryOp::kAdd &&
           e.args[1] == lane_;
  }

  const loops::VarId var_;
  const int64_t block_;
  loops::VarId outer_var_, lane_var_;
  ExprId outer_ = loops::kNone, lane_ = loops::kNone;
};

// for c in [0, n): body  ->  for o in [0, ceil(n / B)): for l in [0, min(B, n - o B)): body[c := o
// B + l].
Function SplitLoop(const Function& from, StmtId loop, int64_t block) {
  Function base = from;
  SplitIndex index(base, from.stmts[static_cast<size_t>(loop)].id, block);
  Function f = Rebuilder(base).Run(
      [&](Function& out, const Expr& copy) { return index.Rewrite(out, copy); });
  Stmt inner = f.stmts[static_cast<size_t>(loop)];
  const ExprId size = inner.args[1];
  const auto known = loops::ConstantOf(f, size);
  ExprId lanes = AddInt(f, block);
  if (!known || *known % block != 0) {
    const ExprId left = AddBinary(f, BinaryOp::kSub, size, index.Start(f));
    lanes = AddBinary(f, BinaryOp::kMin, lanes, left);
  }
  inner.id = index.lane_var();
  inner.args = {AddInt(f, 0), lanes};
  const StmtId inner_id = loops::AddStmt(f, std::move(inner));
  const ExprId blocks = AddFloorDiv(f, Plus(f, size, block - 1), block);
  const ExprId zero = AddInt(f, 0);
  Stmt& place = f.stmts[static_cast<size_t>(loop)];
  place.id = index.outer_var();
  place.args = {zero, blocks};
  place.body = {inner_id};
  return f;
}

}  // namespace

void SplitBlockedLoops(Function& function) {
  const size_t statements = function.stmts.size();
  for (size_t i = 0; i < statements; ++i) {
    const Stmt& stmt = function.stmts[i];
    if (stmt.kind != StmtKind::kFor || loops::ConstantOf(function, stmt.args[0]) != 0) continue;
    if (const auto block = BlockOf(function, stmt))
      function = SplitLoop(function, static_cast<StmtId>(i), *block);
  }
}

namespace {

// The index is the last one of some access, with coefficient 1, and steps through a block.
bool IsBlockLane(const Function& f, StmtId id) {
  const loops::LoopAnalysis analysis(f, id);
  const auto size = loops::ConstantOf(f, f.stmts[static_cast<size_t>(id)].args[1]);
  for (const loops::Access& access : loops::Accesses(f, f.stmts[static_cast<size_t>(id)].body)) {
    if (access.indices.empty() || analysis.Stride(access.indices.back()) != 1) continue;
    const auto block =
        loops::ConstantOf(f, f.buffers[static_cast<size_t>(access.buffer)].dims.back());
    if (block && (!size || *size <= *block)) return true;
  }
  return false;
}

}  // namespace

void MoveBlockLanesInside(Function& f) {
  for (StmtId id : loops::StatementsUnder(f, f.body)) {
    StmtId at = id;
    while (CanSink(f, at) && IsBlockLane(f, at)) {
      Stmt& outer = f.stmts[static_cast<size_t>(at)];
      const StmtId next = outer.body[0];
      Stmt& inner = f.stmts[static_cast<size_t>(next)];
      if (IsBlockLane(f, next)) break;
      std::swap(outer.id, inner.id);
      std::swap(outer.args, inner.args);
      at = next;
    }
  }
}

}  // namespace quench::codegen
