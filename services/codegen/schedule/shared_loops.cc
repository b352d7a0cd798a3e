#include "services/codegen/schedule/shared_loops.h"

#include <algorithm>
#include <optional>

#include "common/loops/analysis.h"
#include "services/codegen/schedule/lane_widths.h"
#include "services/codegen/schedule/rebuild.h"

namespace quench::codegen {
namespace {

using loops::BufferId;
using loops::ExprKind;
using loops::Function;
using loops::LoopAnalysis;
using loops::LoopMark;
using loops::Stmt;
using loops::StmtId;
using loops::StmtKind;

constexpr int kMostThreads = 512;    // of a block
constexpr int64_t kShortRow = 16;    // elements; fewer leave most of a warp idle
constexpr int64_t kMostKept = 32;    // elements of a row that a thread keeps in registers
constexpr int64_t kFewElements = 8;  // for one thread

bool IsScratch(const Function& f, BufferId id) {
  return f.buffers[static_cast<size_t>(id)].role == loops::BufferRole::kScratch;
}

// Threads return one by one from a check that fails, while others would wait for them.
bool MayShare(const Function& f) {
  const bool outlives = std::any_of(f.buffers.begin(), f.buffers.end(), [](const auto& buffer) {
    return buffer.role == loops::BufferRole::kScratch &&
           buffer.scope == loops::ScratchScope::kFunction;
  });
  const std::vector<StmtId> all = loops::StatementsUnder(f, f.body);
  return !outlives && std::none_of(all.begin(), all.end(), [&](StmtId id) {
    const StmtKind kind = At(f, id).kind;
    return kind == StmtKind::kCheck || kind == StmtKind::kSetSlot;
  });
}

// Iterations, if they are a constant and begin at 0.
std::optional<int64_t> Length(const Function& f, StmtId loop) {
  if (loops::ConstantOf(f, At(f, loop).args[0]) != 0) return std::nullopt;
  return loops::ConstantOf(f, At(f, loop).args[1]);
}

// Without variables: what only the run knows, but is the same in all tasks.
bool IsSize(const Function& f, loops::ExprId id) {
  const loops::Expr& e = f.exprs[static_cast<size_t>(id)];
  return e.kind != ExprKind::kVar && e.kind != ExprKind::kLocal && e.kind != ExprKind::kLoad &&
         std::all_of(e.args.begin(), e.args.end(),
                     [&](loops::ExprId arg) { return IsSize(f, arg); });
}

// A loop whose length only the run knows counts as long, a window that is cut off at borders does not.
bool IsLong(const Function& f, StmtId loop, int64_t least) {
  if (const auto most = MaxTrips(f, At(f, loop))) return *most >= least;
  return IsSize(f, At(f, loop).args[0]) && IsSize(f, At(f, loop).args[1]);
}

// Whether the iterations read and write neighbours, where they do not share an element.
bool IsContiguous(const Function& f, StmtId loop) {
  const LoopAnalysis analysis(f, loop);
  bool neighbours = false;
  for (const loops::Access& access : loops::Accesses(f, At(f, loop).body)) {
    if (IsScratch(f, access.buffer)) continue;
    const auto step = ElementStep(f, analysis, access.buffer, access.indices);
    if (step != 0 && step != 1) return false;
    neighbours = neighbours || step == 1;
  }
  return neighbours;
}

// The loop of a perfect nest to share: the innermost where it is long and contiguous.
StmtId LoopToShare(const Function& f, StmtId outermost) {
  StmtId loop = outermost;
  while (At(f, loop).body.size() == 1) {
    const StmtId next = At(f, loop).body[0];
    const Stmt& inner = At(f, next);
    if (inner.kind != StmtKind::kFor || inner.mark != At(f, loop).mark) break;
    loop = next;
  }
  return IsLong(f, loop, kShortRow) && IsContiguous(f, loop) ? loop : outermost;
}

class Sharer {
 public:
  Sharer(const Gpu& gpu, const SymbolTable& symbols, Schedule& schedule)
      : gpu_(gpu), symbols_(symbols), schedule_(schedule), f_(schedule.function) {}

  void Run() {
    if (!schedule_.fill.empty() || !schedule_.lanes.empty() || !MayShare(f_)) return;
    if (!FindLoops() || !ScratchIsShared()) return;
    row_ = RowLength();
    const int threads = Threads();
    schedule_.task_threads = threads;
    schedule_.shared_loops = loops_;
    if (row_ == 0) return;
    const int lanes = Lanes(threads);
    if (lanes > 1) {
      for (const StmtId loop : loops_) schedule_.lanes[loop] = lanes;
    }
    const int64_t each = (row_ + threads * lanes - 1) / (threads * lanes) * lanes;
    if (each > kMostKept) return;
    schedule_.row = row_;
    for (size_t i = 0; i < f_.buffers.size(); ++i) {
      const auto id = static_cast<BufferId>(i);
      if (IsScratch(f_, id) && StaysWithThread(id)) schedule_.kept.insert(id);
    }
  }

 private:
  int64_t Tasks() const {
    const Dim tasks = schedule_.tasks;
    return tasks.is_static() ? tasks.value() : symbols_.BoundsOf(tasks).max;
  }

  // False where tasks are better done by a thread each.
  bool FindLoops() {
    const std::vector<StmtId>& body =
        schedule_.task_loops.empty() ? f_.body : At(f_, schedule_.task_loops.back()).body;
    bool pays = false, contiguous = true;
    for (const StmtId id : body) {
      const Stmt& stmt = At(f_, id);
      if (stmt.kind == StmtKind::kLet || stmt.kind == StmtKind::kSet ||
          stmt.kind == StmtKind::kStore)
        continue;
      if (stmt.kind != StmtKind::kFor || stmt.mark == LoopMark::kSerial) return false;
      const StmtId loop = LoopToShare(f_, id);
      const bool neighbours = IsContiguous(f_, loop);
      const bool is_long = IsLong(f_, loop, neighbours ? kShortRow : kWarp);
      pays = pays || is_long;
      // All threads may add up a short sum, but only one may store an element.
      if (!is_long && stmt.mark != LoopMark::kParallel) continue;
      contiguous = contiguous && (neighbours || OnlyScratch(loop));
      loops_.insert(loop);
    }
    return pays && (contiguous || Tasks() <= gpu_.busy_threads);
  }

  bool OnlyScratch(StmtId loop) const {
    const std::vector<loops::Access> all = loops::Accesses(f_, At(f_, loop).body);
    return std::all_of(all.begin(), all.end(),
                       [&](const loops::Access& access) { return IsScratch(f_, access.buffer); });
  }

  // Scratch is the task's, and stores outside of shared loops are those of all its threads.
  bool ScratchIsShared() const {
    std::map<BufferId, int> inside, total;
    for (const StmtId loop : loops_) {
      for (const loops::Access& access : loops::Accesses(f_, At(f_, loop).body))
        ++inside[access.buffer];
    }
    for (const loops::Access& access : loops::Accesses(f_, f_.body)) ++total[access.buffer];
    return std::all_of(total.begin(), total.end(), [&](const auto& each) {
      return !IsScratch(f_, each.first) || inside[each.first] == each.second;
    });
  }

  // Elements of the row that all loops go through, 0 where they differ.
  int64_t RowLength() const {
    int64_t row = 0;
    for (const StmtId loop : loops_) {
      const auto length = Length(f_, loop);
      if (!length || (row != 0 && *length != row)) return 0;
      row = *length;
    }
    return row;
  }

  // Blocks where a row is too long for a warp's registers, or there are few rows.
  int Threads() const {
    int threads = kWarp;
    if (row_ == 0) return threads;
    while (threads < kMostThreads && row_ > kMostKept * threads) threads *= 2;
    const int64_t tasks = std::min<int64_t>(Tasks(), gpu_.busy_threads);
    while (threads < kMostThreads && tasks * threads < gpu_.busy_threads &&
           row_ >= 2 * kFewElements * threads)
      threads *= 2;
    return threads;
  }

  // Elements that a thread does at once: all loops alike, for each then has the same elements in all.
  int Lanes(int threads) const {
    int64_t lanes = kWidestAccess;
    for (const StmtId loop : loops_) lanes = std::min(lanes, WidestLanes(f_, loop));
    while (lanes > 1 && (row_ % lanes != 0 || row_ / lanes < threads)) lanes /= 2;
    return static_cast<int>(std::max<int64_t>(lanes, 1));
  }

  // The shared loops use the scratch at their index alone.
  bool StaysWithThread(BufferId id) const {
    for (const StmtId loop : loops_) {
      const std::vector<StmtId>& body = At(f_, loop).body;
      for (const loops::Access& access : loops::Accesses(f_, body)) {
        if (access.buffer != id) continue;
        const bool direct = std::find(body.begin(), body.end(), access.stmt) != body.end() &&
                            At(f_, access.stmt).body.empty();
        if (!direct || access.indices.size() != 1) return false;
        const loops::Expr& index = f_.exprs[static_cast<size_t>(access.indices[0])];
        if (index.kind != ExprKind::kVar || index.id != At(f_, loop).id) return false;
      }
    }
    return true;
  }

  const Gpu& gpu_;
  const SymbolTable& symbols_;
  Schedule& schedule_;
  const Function& f_;
  std::set<StmtId> loops_;
  int64_t row_ = 0;
};

}  // namespace

void ChooseSharedLoops(const Gpu& gpu, const SymbolTable& symbols, Schedule& schedule) {
  Sharer(gpu, symbols, schedule).Run();
}

}  // namespace quench::codegen
