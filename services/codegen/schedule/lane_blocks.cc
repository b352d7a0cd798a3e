#include "services/codegen/schedule/lane_blocks.h"

#include <algorithm>

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
using loops::LoopAnalysis;
using loops::LoopMark;
using loops::Stmt;
using loops::StmtId;

constexpr int64_t kTile = 16;  // a cache line of f32

bool FromZero(const Function& f, const Stmt& loop) {
  return loop.mark == LoopMark::kParallel && loops::ConstantOf(f, loop.args[0]) == 0;
}

// Every access to the buffers gets one more index: v - start.
void AddLaneIndex(Function& f, StmtId loop, ExprId start, int64_t lanes,
                  const std::vector<BufferId>& buffers) {
  const loops::VarId var = At(f, loop).id;
  const loops::VarId block =
      f.exprs[static_cast<size_t>(f.exprs[static_cast<size_t>(start)].args[0])].id;
  const auto own = [&](BufferId id) {
    return std::find(buffers.begin(), buffers.end(), id) != buffers.end();
  };
  const auto lane = [&](Function& out) {
    Expr e;
    e.kind = ExprKind::kVar;
    e.id = var;
    const ExprId index = AddExpr(out, e);
    e.id = block;
    const ExprId first = AddBinary(out, BinaryOp::kMul, AddExpr(out, e), AddInt(out, lanes));
    return AddBinary(out, BinaryOp::kSub, index, first);
  };
  f = Rebuilder(f).Run([&](Function& out, const Expr& copy) -> std::optional<ExprId> {
    if (copy.kind != ExprKind::kLoad || !own(copy.id)) return std::nullopt;
    Expr load = copy;
    load.args.push_back(lane(out));
    return AddExpr(out, std::move(load));
  });
  const ExprId index = lane(f);
  for (StmtId id : loops::StatementsUnder(f, At(f, loop).body)) {
    if (At(f, id).kind == loops::StmtKind::kStore && own(At(f, id).id))
      At(f, id).args.push_back(index);
  }
  for (BufferId id : buffers) {
    const ExprId size = AddInt(f, lanes);
    f.buffers[static_cast<size_t>(id)].dims.push_back(size);
  }
}

}  // namespace

Cut CutLoop(Function& f, StmtId id, int64_t size) {
  const ExprId n = At(f, id).args[1];
  const auto known = loops::ConstantOf(f, n);
  const ExprId block = loops::AddVar(f, f.vars[static_cast<size_t>(At(f, id).id)] + ".block");
  const ExprId start = AddBinary(f, BinaryOp::kMul, block, AddInt(f, size));
  ExprId end = AddBinary(f, BinaryOp::kAdd, start, AddInt(f, size));
  if (!known || *known % size != 0) end = AddBinary(f, BinaryOp::kMin, end, n);
  Stmt inner = At(f, id);
  inner.args = {start, end};
  const StmtId inner_id = loops::AddStmt(f, std::move(inner));
  const ExprId blocks = AddFloorDiv(f, AddBinary(f, BinaryOp::kAdd, n, AddInt(f, size - 1)), size);
  const ExprId zero = AddInt(f, 0);
  Stmt& outer = At(f, id);
  outer.id = f.exprs[static_cast<size_t>(block)].id;
  outer.args = {zero, blocks};
  outer.body = {inner_id};
  return {inner_id, start};
}

std::vector<BufferId> OwnScratch(const Function& f, StmtId loop) {
  std::vector<BufferId> own;
  for (const loops::Access& access : loops::Accesses(f, At(f, loop).body)) {
    const loops::Buffer& buffer = f.buffers[static_cast<size_t>(access.buffer)];
    if (buffer.role != loops::BufferRole::kScratch ||
        buffer.scope != loops::ScratchScope::kIteration)
      continue;
    if (std::find(own.begin(), own.end(), access.buffer) == own.end()) own.push_back(access.buffer);
  }
  return own;
}

bool CanPrivatise(const Function& f, StmtId loop) {
  if (!FromZero(f, At(f, loop))) return false;
  const std::vector<BufferId> own = OwnScratch(f, loop);
  const auto uses = [&](std::span<const StmtId> body) {
    int64_t count = 0;
    for (const loops::Access& access : loops::Accesses(f, body)) {
      count += std::find(own.begin(), own.end(), access.buffer) != own.end() ? 1 : 0;
    }
    return count;
  };
  return uses(At(f, loop).body) == uses(f.body);
}

void PrivatiseScratch(Schedule& schedule) {
  Function& f = schedule.function;
  const std::map<StmtId, int> planned = schedule.lanes;
  for (StmtId id : f.body) {
    StmtId at = id;
    while (At(f, at).body.size() == 1 && planned.count(at) == 0) at = At(f, at).body[0];
    const auto lanes = planned.find(at);
    if (lanes == planned.end() || At(f, at).mark != LoopMark::kParallel) continue;
    const std::vector<BufferId> own = OwnScratch(f, at);
    if (own.empty()) continue;
    const Cut cut = CutLoop(f, at, lanes->second);
    AddLaneIndex(f, cut.inner, cut.start, lanes->second, own);
    schedule.lanes.erase(at);
    schedule.lanes[cut.inner] = lanes->second;
  }
}

namespace {

// The loop of the chain along which the nest reads neighbours, when the innermost one reads apart;
// kNone otherwise.
StmtId ReadingLoop(const Function& f, const std::vector<StmtId>& chain) {
  const StmtId innermost = chain.back();
  const LoopAnalysis lanes(f, innermost);
  for (const loops::Access& access : loops::Accesses(f, At(f, innermost).body)) {
    if (access.is_store()) continue;
    const auto step = ElementStep(f, lanes, access.buffer, access.indices);
    if (step && *step >= -4 && *step <= 4) continue;
    for (StmtId loop : chain) {
      if (loop == innermost) continue;
      if (ElementStep(f, LoopAnalysis(f, loop), access.buffer, access.indices) == 1) return loop;
    }
  }
  return loops::kNone;
}

bool IsLong(const Function& f, StmtId loop) {
  const auto n = loops::ConstantOf(f, At(f, loop).args[1]);
  return !n || *n >= 2 * kTile;
}

bool OnlyStores(const Function& f, StmtId loop) {
  const std::vector<StmtId>& body = At(f, loop).body;
  return std::all_of(body.begin(), body.end(), [&](StmtId id) {
    return At(f, id).kind == loops::StmtKind::kStore || At(f, id).kind == loops::StmtKind::kLet;
  });
}

void TileChain(Schedule& schedule, std::vector<StmtId> chain, StmtId reading) {
  Function& f = schedule.function;
  // The reading loop moves next to the innermost one.
  for (size_t i = 0; i + 2 < chain.size(); ++i) {
    if (chain[i] != reading) continue;
    std::swap(At(f, chain[i]).id, At(f, chain[i + 1]).id);
    std::swap(At(f, chain[i]).args, At(f, chain[i + 1]).args);
    reading = chain[i + 1];
  }
  const StmtId innermost = chain.back();
  const int lanes = schedule.lanes.at(innermost);
  const StmtId columns = CutLoop(f, innermost, std::max<int64_t>(kTile, lanes)).inner;
  const StmtId rows = CutLoop(f, reading, kTile).inner;
  // reading: [rows: [innermost: [columns]]]  ->  reading: [innermost: [rows: [columns]]].
  At(f, reading).body = {innermost};
  At(f, innermost).body = {rows};
  At(f, rows).body = {columns};
  schedule.lanes.erase(innermost);
  schedule.lanes[columns] = lanes;
}

}  // namespace

void TileTransposes(Schedule& schedule) {
  const std::map<StmtId, int> planned = schedule.lanes;
  for (StmtId id : loops::StatementsUnder(schedule.function, schedule.function.body)) {
    const std::vector<StmtId> chain = ParallelChain(schedule.function, id);
    if (chain.size() < 2 || planned.count(chain.back()) == 0 ||
        !OnlyStores(schedule.function, chain.back()))
      continue;
    if (schedule.lanes.count(chain.back()) == 0)
      continue;  // tiled already, as part of a longer chain
    const StmtId reading = ReadingLoop(schedule.function, chain);
    if (reading == loops::kNone || !IsLong(schedule.function, reading) ||
        !IsLong(schedule.function, chain.back()))
      continue;
    TileChain(schedule, chain, reading);
  }
}

}  // namespace quench::codegen
