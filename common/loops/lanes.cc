#include "common/loops/lanes.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/loops/analysis.h"
#include "common/loops/scalar.h"

namespace quench::loops {
namespace {

// Iterations below which planning costs more than it saves.
constexpr int64_t kWorthPlanning = 64;
// A loop with fewer iterations fills too few lanes.
constexpr int64_t kWorthLanes = 4;
constexpr int64_t kLongLoop = 64;

int64_t Trips(Ranges& ranges, const Stmt& loop) {
  const Range begin = ranges.Of(loop.args[0]);
  const Range end = ranges.Of(loop.args[1]);
  if (!begin.IsPoint() || !end.IsPoint()) return kLongLoop;  // unknown: likely long
  if (end.hi <= begin.lo) return 0;
  return std::min<int64_t>(end.hi - begin.lo, int64_t{1} << 40);
}

// Strips a clamp to constants or sizes: padding keeps most lanes in order.
ExprId Unclamped(const Function& f, ExprId id) {
  for (;;) {
    const Expr& e = f.exprs[static_cast<size_t>(id)];
    if (e.kind != ExprKind::kBinary || (e.binary != BinaryOp::kMin && e.binary != BinaryOp::kMax))
      return id;
    const ExprKind limit = f.exprs[static_cast<size_t>(e.args[1])].kind;
    if (limit != ExprKind::kInt && limit != ExprKind::kSlot) return id;
    id = e.args[0];
  }
}

// Loops around each statement under `body`.
void AddDepths(const Function& f, std::span<const StmtId> body, int depth,
               std::map<StmtId, int>& depths) {
  for (const StmtId id : body) {
    depths[id] = depth;
    const int inner =
        depth + (At(f, id).kind == StmtKind::kFor || At(f, id).kind == StmtKind::kWhile ? 1 : 0);
    AddDepths(f, At(f, id).body, inner, depths);
    AddDepths(f, At(f, id).otherwise, inner, depths);
  }
}

// The effect of a loop on memory if its iterations were lanes.
class AccessModel {
 public:
  AccessModel(const Function& function, std::span<const StmtId> body, std::span<const Shape> shapes)
      : f_(function), shapes_(shapes), accesses_(Accesses(function, body)) {
    AddDepths(function, body, 0, depths_);
  }

  // Mean cost of an access, those in deeper loops counting more: 1 for neighbours, more for jumps.
  double Cost(StmtId loop) const {
    const LoopAnalysis analysis(f_, loop);
    double cost = 0;
    double weights = 0;
    for (const Access& access : accesses_) {
      const double weight = std::pow(8.0, std::min(depths_.at(access.stmt), 4));
      cost += weight * CostOf(analysis, access);
      weights += weight;
    }
    return weights == 0 ? 1 : cost / weights;
  }

 private:
  double CostOf(const LoopAnalysis& analysis, const Access& access) const {
    const Shape& shape = shapes_[static_cast<size_t>(access.buffer)];
    int64_t step = 0;
    for (size_t d = 0; d < access.indices.size(); ++d) {
      const std::optional<int64_t> stride = analysis.Stride(Unclamped(f_, access.indices[d]));
      if (!stride) return 4;
      step = scalar::Add(step, scalar::Mul(*stride, shape.strides[d]));
    }
    return step == 0 ? 0.5 : step == 1 ? 1 : 3;
  }

  const Function& f_;
  std::span<const Shape> shapes_;
  std::vector<Access> accesses_;
  std::map<StmtId, int> depths_;
};

// A marked loop without loops in it, long enough to run in lanes itself.
bool HasLongInnerLoop(const Function& f, std::span<const StmtId> body, Ranges& ranges) {
  for (const StmtId id : StatementsUnder(f, body)) {
    const Stmt& stmt = At(f, id);
    if (stmt.kind != StmtKind::kFor || stmt.mark == LoopMark::kSerial) continue;
    const bool innermost = std::none_of(stmt.body.begin(), stmt.body.end(), [&](StmtId inner) {
      return At(f, inner).kind == StmtKind::kFor || At(f, inner).kind == StmtKind::kWhile;
    });
    const Expr& begin = f.exprs[static_cast<size_t>(stmt.args[0])];
    const Expr& end = f.exprs[static_cast<size_t>(stmt.args[1])];
    const bool fixed = begin.args.empty() && end.args.empty() && begin.kind != ExprKind::kVar &&
                       end.kind != ExprKind::kVar;
    if (innermost && fixed && Trips(ranges, stmt) >= kLongLoop) return true;
  }
  return false;
}

}  // namespace

void LanePlan::Reset() { varies_.assign(function_->exprs.size(), -1); }

bool LanePlan::Make(const Function& function, StmtId loop, bool outermost, LanePlan* plan) {
  plan->function_ = &function;
  plan->loop_ = loop;
  plan->outermost_ = outermost;
  plan->locals_.assign(function.locals.size(), false);
  plan->vars_.assign(function.vars.size(), false);
  const Stmt& stmt = At(function, loop);
  if (stmt.mark == LoopMark::kSerial) return false;
  plan->vars_[static_cast<size_t>(stmt.id)] = true;
  if (outermost && stmt.mark == LoopMark::kParallel && plan->UsesIterationScratch(stmt.body))
    return false;
  do {
    plan->Reset();
  } while (plan->SpreadLocals(stmt.body, false));
  return plan->Legal(stmt.body, false, true);
}

bool LanePlan::Reduces(LocalId local) const {
  const Stmt& loop = At(*function_, loop_);
  return std::any_of(loop.reductions.begin(), loop.reductions.end(),
                     [&](const Reduction& reduction) { return reduction.local == local; });
}

bool LanePlan::Varies(ExprId id) const {
  int8_t& known = varies_[static_cast<size_t>(id)];
  if (known >= 0) return known != 0;
  const Expr& e = function_->exprs[static_cast<size_t>(id)];
  bool varies = false;
  if (e.kind == ExprKind::kVar) varies = vars_[static_cast<size_t>(e.id)];
  if (e.kind == ExprKind::kLocal) varies = locals_[static_cast<size_t>(e.id)];
  for (const ExprId arg : e.args) varies = varies || Varies(arg);
  varies_[static_cast<size_t>(id)] = varies ? 1 : 0;
  return varies;
}

// Marks lets and locals that take varying values; true when a local was newly marked.
bool LanePlan::SpreadLocals(std::span<const StmtId> body, bool masked) {
  bool changed = false;
  for (const StmtId id : body) {
    const Stmt& stmt = At(*function_, id);
    const bool varies = !stmt.args.empty() && Varies(stmt.args[0]);
    if (stmt.kind == StmtKind::kLet && varies) vars_[static_cast<size_t>(stmt.id)] = true;
    if (stmt.kind == StmtKind::kSet && (varies || masked) && !Reduces(stmt.id) &&
        !LocalVaries(stmt.id)) {
      locals_[static_cast<size_t>(stmt.id)] = true;
      changed = true;
    }
    const bool inner_mask = masked || (stmt.kind == StmtKind::kIf && varies);
    changed |= SpreadLocals(stmt.body, inner_mask);
    changed |= SpreadLocals(stmt.otherwise, inner_mask);
  }
  return changed;
}

bool LanePlan::Legal(std::span<const StmtId> body, bool masked, bool top) {
  for (const StmtId id : body) {
    const Stmt& stmt = At(*function_, id);
    switch (stmt.kind) {
      case StmtKind::kSetSlot:
        return false;
      case StmtKind::kWhile:
        if (Varies(stmt.args[0])) return false;
        break;
      case StmtKind::kFor:
        if (Varies(stmt.args[0]) || Varies(stmt.args[1])) return false;
        break;
      case StmtKind::kSet:
        if (Reduces(stmt.id) && !top) return false;
        break;
      case StmtKind::kStore:
        if (std::none_of(stmt.args.begin() + 1, stmt.args.end(),
                         [&](ExprId arg) { return Varies(arg); }))
          return false;
        break;
      default:
        break;
    }
    const bool inner_mask = masked || (stmt.kind == StmtKind::kIf && Varies(stmt.args[0]));
    if (!Legal(stmt.body, inner_mask, false) || !Legal(stmt.otherwise, inner_mask, false))
      return false;
  }
  return true;
}

bool LanePlan::UsesIterationScratch(std::span<const StmtId> body) const {
  const std::vector<Access> accesses = Accesses(*function_, body);
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access& access) {
    const Buffer& buffer = function_->buffers[static_cast<size_t>(access.buffer)];
    return buffer.role == BufferRole::kScratch && buffer.scope == ScratchScope::kIteration;
  });
}

std::vector<StmtId> LaneCandidates(const Function& function, StmtId loop, Ranges& ranges,
                                   std::span<const Shape> shapes) {
  std::vector<StmtId> chain = {loop};
  int64_t work = std::max<int64_t>(Trips(ranges, At(function, loop)), 0);
  const LoopMark mark = At(function, loop).mark;
  while (mark == LoopMark::kParallel) {
    StmtId only = kNone;
    bool perfect = true;
    for (const StmtId id : At(function, chain.back()).body) {
      const Stmt& stmt = At(function, id);
      if (stmt.kind == StmtKind::kLet) continue;
      perfect = perfect && only == kNone && stmt.kind == StmtKind::kFor &&
                stmt.mark == LoopMark::kParallel;
      only = id;
    }
    if (!perfect || only == kNone) break;
    chain.push_back(only);
    work = std::min<int64_t>(work, int64_t{1} << 20) *
           std::max<int64_t>(Trips(ranges, At(function, only)), 0);
  }
  const std::span<const StmtId> innermost = At(function, chain.back()).body;
  const bool inner_loops = HasLongInnerLoop(function, innermost, ranges);
  if (work < kWorthPlanning && !inner_loops) return {};
  const AccessModel model(function, innermost, shapes);
  struct Candidate {
    StmtId loop;
    double cost;
  };
  std::vector<Candidate> candidates;
  for (const StmtId id : chain) {
    const int64_t trips = Trips(ranges, At(function, id));
    if (trips < kWorthLanes) continue;
    const double access = model.Cost(id);
    if (inner_loops && access >= 2) continue;  // the loops further in walk memory in order
    candidates.push_back(
        {id, access * (1 + 24.0 / static_cast<double>(std::min<int64_t>(trips, 128)))});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
  std::vector<StmtId> loops;
  for (const Candidate& candidate : candidates) loops.push_back(candidate.loop);
  return loops;
}

}  // namespace quench::loops
