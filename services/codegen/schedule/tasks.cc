#include "services/codegen/schedule/tasks.h"

#include <algorithm>

#include "common/loops/analysis.h"
#include "services/codegen/schedule/rebuild.h"
#include "services/codegen/schedule/scratch.h"

namespace quench::codegen {
namespace {

using loops::AddBinary;
using loops::BinaryOp;
using loops::Function;
using loops::LoopMark;
using loops::Stmt;
using loops::StmtId;
using loops::StmtKind;

constexpr int64_t kEnoughTasks = 64;
constexpr int64_t kRange = 4096;  // iterations of a flat loop per task

bool IsParallel(const Function& f, StmtId id) {
  const Stmt& stmt = f.stmts[static_cast<size_t>(id)];
  return stmt.kind == StmtKind::kFor && stmt.mark == LoopMark::kParallel &&
         loops::ConstantOf(f, stmt.args[0]) == 0;
}

bool IsCheap(const Stmt& stmt) {
  return stmt.kind == StmtKind::kLet || stmt.kind == StmtKind::kSet ||
         stmt.kind == StmtKind::kCheck;
}

bool UsesVar(const Function& f, loops::ExprId id, loops::VarId var) {
  const loops::Expr& e = f.exprs[static_cast<size_t>(id)];
  if (e.kind == loops::ExprKind::kVar && e.id == var) return true;
  return std::any_of(e.args.begin(), e.args.end(),
                     [&](loops::ExprId arg) { return UsesVar(f, arg, var); });
}

// Function-scope scratch is shared by the iterations of the parallel loop when both it and code
// outside, or several iterations, use it: such a function runs as one task.
bool SharesScratch(const Function& f) {
  return std::any_of(f.buffers.begin(), f.buffers.end(), [](const loops::Buffer& buffer) {
    return buffer.role == loops::BufferRole::kScratch &&
           buffer.scope == loops::ScratchScope::kFunction;
  });
}

// The statement that may become the task loop, or kNone.
StmtId TaskLoop(const Function& f) {
  if (f.body.empty() || SharesScratch(f)) return loops::kNone;
  for (size_t i = 0; i + 1 < f.body.size(); ++i) {
    if (!IsCheap(f.stmts[static_cast<size_t>(f.body[i])])) return loops::kNone;
  }
  return IsParallel(f, f.body.back()) ? f.body.back() : loops::kNone;
}

}  // namespace

std::vector<StmtId> ParallelChain(const Function& f, StmtId loop) {
  std::vector<StmtId> chain;
  while (IsParallel(f, loop)) {
    const Stmt& stmt = f.stmts[static_cast<size_t>(loop)];
    const bool independent = std::none_of(chain.begin(), chain.end(), [&](StmtId outer) {
      return UsesVar(f, stmt.args[1], f.stmts[static_cast<size_t>(outer)].id);
    });
    if (!independent) break;
    chain.push_back(loop);
    if (stmt.body.size() != 1) break;
    loop = stmt.body[0];
  }
  return chain;
}

bool CanSink(const Function& f, StmtId loop) {
  const Stmt& outer = f.stmts[static_cast<size_t>(loop)];
  if (outer.kind != StmtKind::kFor || outer.mark != LoopMark::kParallel || outer.body.size() != 1)
    return false;
  const Stmt& inner = f.stmts[static_cast<size_t>(outer.body[0])];
  if (inner.kind != StmtKind::kFor || inner.mark != LoopMark::kParallel) return false;
  return !UsesVar(f, inner.args[0], outer.id) && !UsesVar(f, inner.args[1], outer.id);
}

void SplitFlatLoops(Schedule& schedule) {
  Function& f = schedule.function;
  if (f.body.empty()) return;
  const StmtId id = f.body.back();
  const auto planned = schedule.lanes.find(id);
  if (planned == schedule.lanes.end() || !IsParallel(f, id)) return;
  const loops::ExprId size = f.stmts[static_cast<size_t>(id)].args[1];
  const auto known = loops::ConstantOf(f, size);
  if (known && *known < 2 * kRange) return;
  const loops::ExprId range = loops::AddInt(f, kRange);
  const loops::ExprId ranges =
      AddFloorDiv(f, AddBinary(f, BinaryOp::kAdd, size, loops::AddInt(f, kRange - 1)), kRange);
  const loops::ExprId number = loops::AddVar(f, "range");
  const loops::ExprId begin = AddBinary(f, BinaryOp::kMul, number, range);
  loops::ExprId end = AddBinary(f, BinaryOp::kAdd, begin, range);
  if (!known || *known % kRange != 0) end = AddBinary(f, BinaryOp::kMin, end, size);
  Stmt inner = f.stmts[static_cast<size_t>(id)];
  inner.args = {begin, end};
  const StmtId inner_id = loops::AddStmt(f, std::move(inner));
  const loops::ExprId zero = loops::AddInt(f, 0);
  Stmt& outer = f.stmts[static_cast<size_t>(id)];
  outer.id = f.exprs[static_cast<size_t>(number)].id;
  outer.args = {zero, ranges};
  outer.body = {inner_id};
  schedule.lanes[inner_id] = planned->second;
  schedule.lanes.erase(id);
}

void ChooseTasks(SymbolTable& symbols, Schedule& schedule, bool all) {
  const StmtId first = TaskLoop(schedule.function);
  if (first == loops::kNone) return;
  Dim tasks = 1;
  for (StmtId id : ParallelChain(schedule.function, first)) {
    if (schedule.lanes.count(id) != 0) break;
    const auto extent =
        DimOf(schedule.function, schedule.function.stmts[static_cast<size_t>(id)].args[1], symbols);
    if (!extent.ok()) break;
    schedule.task_loops.push_back(id);
    tasks = symbols.Mul(tasks, *extent);
    if (!all && tasks.is_static() && tasks.value() >= kEnoughTasks) break;
  }
  if (!schedule.task_loops.empty()) schedule.tasks = tasks;
}

}  // namespace quench::codegen
