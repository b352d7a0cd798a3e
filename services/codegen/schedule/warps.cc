#include "services/codegen/schedule/warps.h"

#include <algorithm>

#include "common/loops/analysis.h"

namespace quench::codegen {
namespace {

using loops::Function;
using loops::LoopMark;
using loops::Stmt;
using loops::StmtId;
using loops::StmtKind;

constexpr int64_t kManyTasks = 65536;  // that keep a card busy one by one

// Threads return one by one from a check that fails, and wait for each other in scratch memory that none of them owns.
bool MayShare(const Function& f) {
  const bool scratch = std::any_of(f.buffers.begin(), f.buffers.end(), [](const auto& buffer) {
    return buffer.role == loops::BufferRole::kScratch;
  });
  const std::vector<StmtId> all = loops::StatementsUnder(f, f.body);
  return !scratch && std::none_of(all.begin(), all.end(), [&](StmtId id) {
    const StmtKind kind = f.stmts[static_cast<size_t>(id)].kind;
    return kind == StmtKind::kCheck || kind == StmtKind::kSetSlot;
  });
}

bool IsLong(const Function& f, const Stmt& loop) {
  const auto begin = loops::ConstantOf(f, loop.args[0]), end = loops::ConstantOf(f, loop.args[1]);
  return !begin || !end || *end - *begin >= kWarp;
}

}  // namespace

void ChooseWarps(Schedule& schedule) {
  const Function& f = schedule.function;
  if (schedule.tasks.is_static() && schedule.tasks.value() > kManyTasks) return;
  if (!schedule.fill.empty() || !MayShare(f)) return;
  const std::vector<StmtId>& body =
      schedule.task_loops.empty() ? f.body
                                  : f.stmts[static_cast<size_t>(schedule.task_loops.back())].body;
  std::set<StmtId> shared;
  bool pays = false;
  for (const StmtId id : body) {
    const Stmt& stmt = f.stmts[static_cast<size_t>(id)];
    if (stmt.kind == StmtKind::kLet || stmt.kind == StmtKind::kSet || stmt.kind == StmtKind::kStore)
      continue;
    if (stmt.kind != StmtKind::kFor || stmt.mark == LoopMark::kSerial) return;
    const bool is_long = IsLong(f, stmt);
    pays = pays || is_long;
    // All threads may add up a short sum, but only one may store an element.
    if (is_long || stmt.mark == LoopMark::kParallel) shared.insert(id);
  }
  if (pays) schedule.warp_loops = std::move(shared);
}

}  // namespace quench::codegen
