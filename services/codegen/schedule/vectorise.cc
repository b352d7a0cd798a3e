#include "services/codegen/schedule/vectorise.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "services/codegen/schedule/lane_blocks.h"
#include "services/codegen/schedule/rebuild.h"
#include "services/codegen/schedule/tasks.h"

namespace quench::codegen {
namespace {

using loops::BinaryOp;
using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Function;
using loops::LoopAnalysis;
using loops::LoopMark;
using loops::Stmt;
using loops::StmtId;
using loops::StmtKind;
using loops::UnaryOp;

constexpr double kUnknownTrips = 48;  // of a loop whose extent is known at run time only
constexpr double kGather = 1.6;       // per lane
constexpr double kScatter = 1.8;      // per lane
constexpr double kLoopOverhead = 2;
constexpr double kMasked =
    2.5;  // a body with lanes that differ in control flow, beside one where they do not
constexpr int kAccumulators = 4;  // independent chains that hide the latency of an addition
constexpr int kMaxLanes = 64;

// Predicted instructions of statements under a loop whose iterations are `lanes` lanes (1: scalar
// code).
class CostModel {
 public:
  CostModel(const Function& f, std::optional<StmtId> loop, int lanes) : f_(f), lanes_(lanes) {
    if (loop) analysis_.emplace(f, *loop);
  }

  double Of(std::span<const StmtId> body) {
    double cost = 0;
    for (StmtId id : body) cost += Of(id);
    return cost;
  }

 private:
  const Stmt& At(StmtId id) const { return f_.stmts[static_cast<size_t>(id)]; }
  bool Varies(ExprId id) const { return analysis_ && !analysis_->Invariant(id); }

  double Of(StmtId id) {
    const Stmt& stmt = At(id);
    seen_.clear();
    double cost = 0;
    for (ExprId arg : stmt.args) cost += OfExpr(arg);
    if (stmt.kind == StmtKind::kStore)
      cost += OfAccess(stmt.id, std::span(stmt.args).subspan(1), true);
    const double inner = Of(stmt.body) + Of(stmt.otherwise);
    if (stmt.kind == StmtKind::kFor) {
      const bool ragged = Varies(stmt.args[0]) || Varies(stmt.args[1]);
      return cost + Trips(f_, stmt) * (inner * (ragged ? 1.3 : 1) + kLoopOverhead) +
             (ragged ? 8 : 0);
    }
    if (stmt.kind == StmtKind::kWhile)
      return cost + 8 * inner * (Varies(stmt.args[0]) ? kMasked : 1);
    if (stmt.kind == StmtKind::kIf) return cost + inner * (Varies(stmt.args[0]) ? kMasked : 0.7);
    return cost;
  }

  double OfExpr(ExprId id) {
    if (!seen_.insert(id).second) return 0;
    const Expr& e = f_.exprs[static_cast<size_t>(id)];
    double cost = 0;
    for (ExprId arg : e.args) cost += OfExpr(arg);
    if (e.kind == ExprKind::kLoad) return cost + OfAccess(e.id, e.args, false);
    if (e.args.empty() || (analysis_ && analysis_->Stride(id) && IsInteger(e.type))) return cost;
    return cost + Operation(e) * (Varies(id) ? Widening(e) : 1);
  }

  // Vectors of 64-bit integers take several registers.
  double Widening(const Expr& e) const { return e.type == DataType::kI64 ? 2 : 1; }

  double Operation(const Expr& e) const {
    const bool real = IsFloat(f_.exprs[static_cast<size_t>(e.args[0])].type);
    if (e.kind == ExprKind::kUnary)
      return e.unary >= UnaryOp::kExp && e.unary <= UnaryOp::kLogistic ? 24 : 1;
    if (e.kind == ExprKind::kCast) return real && IsInteger(e.type) ? 4 : 1;
    if (e.kind != ExprKind::kBinary) return 1;
    switch (e.binary) {
      case BinaryOp::kPow:
        return 80;
      case BinaryOp::kDiv:
        return real ? 4 : 8.0 * lanes_;
      case BinaryOp::kRem:
      case BinaryOp::kFloorDiv:
      case BinaryOp::kFloorMod:
        return (real ? 12.0 : 8.0) * lanes_;
      default:
        return 1;
    }
  }

  double OfAccess(loops::BufferId buffer, std::span<const ExprId> indices, bool store) const {
    if (!analysis_) return 1;
    const auto step = ElementStep(f_, *analysis_, buffer, indices);
    if (step == 0 || step == 1) return 1;
    const double per_lane = store ? kScatter : kGather;
    if (step && !store && std::abs(*step) <= 4)
      return std::min<double>(2.0 * std::abs(static_cast<double>(*step)), per_lane * lanes_);
    return per_lane * lanes_;
  }

  const Function& f_;
  int lanes_;
  std::optional<LoopAnalysis> analysis_;
  std::set<ExprId> seen_;

 public:
  static double Trips(const Function& f, const Stmt& loop) {
    if (const auto trips = MaxTrips(f, loop)) return static_cast<double>(*trips);
    // Steps of a range, [r w, r w + w): the distance is what matters.
    const Expr& end = f.exprs[static_cast<size_t>(loop.args[1])];
    if (end.kind == ExprKind::kBinary && end.binary == BinaryOp::kMin) {
      for (ExprId arg : end.args) {
        if (const auto limit = loops::ConstantOf(f, arg))
          return std::min<double>(static_cast<double>(*limit), kUnknownTrips);
      }
    }
    return kUnknownTrips;
  }
};

struct Plan {
  double cost = 0;
  std::map<StmtId, int> lanes;
};

class Chooser {
 public:
  Chooser(const Function& f, const Target& target) : f_(f), target_(target) {}

  Plan OfBody(std::span<const StmtId> body, bool outermost) {
    Plan plan;
    for (StmtId id : body) {
      Plan part = Of(id, outermost);
      plan.cost += part.cost;
      plan.lanes.merge(part.lanes);
    }
    return plan;
  }

 private:
  const Stmt& At(StmtId id) const { return f_.stmts[static_cast<size_t>(id)]; }

  // `outermost`: no parallel loop encloses the statement.
  Plan Of(StmtId id, bool outermost) {
    const Stmt& stmt = At(id);
    if (stmt.body.empty() && stmt.otherwise.empty())
      return {CostModel(f_, std::nullopt, 1).Of(std::span(&id, 1)), {}};
    const bool parallel = stmt.kind == StmtKind::kFor && stmt.mark == LoopMark::kParallel;
    // Scratch of one iteration belongs to the whole perfect nest that starts outermost.
    Plan plan = OfBody(stmt.body, outermost && (!parallel || stmt.body.size() == 1));
    Plan other = OfBody(stmt.otherwise, outermost);
    plan.cost += other.cost;
    plan.lanes.merge(other.lanes);
    if (stmt.kind != StmtKind::kFor) return plan;
    const double trips = CostModel::Trips(f_, stmt);
    plan.cost = trips * (plan.cost + kLoopOverhead);
    if (const int lanes = LanesOf(id, outermost); lanes > 1) {
      const double cost = LanesCost(id, lanes, trips);
      if (cost < plan.cost) return {cost, {{id, lanes}}};
    }
    return plan;
  }

  double LanesCost(StmtId id, int lanes, double trips) {
    const Stmt& stmt = At(id);
    // Wide bodies take several registers per value: counted as so many instructions.
    const double registers =
        std::max(1.0, static_cast<double>(lanes) * WidestBits(id) / target_.vector_bits);
    const double vector = CostModel(f_, id, lanes).Of(stmt.body) * registers + kLoopOverhead;
    double cost = std::floor(trips / lanes) * vector;
    const double rest = std::fmod(trips, lanes);
    if (rest > 0) {
      const double scalar = CostModel(f_, std::nullopt, 1).Of(stmt.body) + kLoopOverhead;
      cost += std::min(vector * 1.2, rest * scalar);
    }
    if (stmt.mark == LoopMark::kReduce) cost += 6.0 * static_cast<double>(stmt.reductions.size());
    return cost;
  }

  // Widest element that the body computes on; index arithmetic does not count.
  int WidestBits(StmtId id) const {
    const Stmt& stmt = At(id);
    int bits = 8;
    const std::vector<bool> live = Reachable(f_, stmt.body);
    for (size_t i = 0; i < f_.exprs.size(); ++i) {
      const Expr& e = f_.exprs[i];
      if (!live[i] || e.kind == ExprKind::kInt || e.type == DataType::kBool) continue;
      if (e.type == DataType::kI64 && e.kind != ExprKind::kLoad) continue;
      bits = std::max(bits, DataTypeBits(e.type));
    }
    for (const loops::Access& access : loops::Accesses(f_, stmt.body)) {
      if (access.is_store())
        bits = std::max(bits, DataTypeBits(f_.buffers[static_cast<size_t>(access.buffer)].dtype));
    }
    return bits;
  }

  bool Legal(StmtId id, bool outermost) const {
    const Stmt& stmt = At(id);
    if (stmt.mark == LoopMark::kSerial) return false;
    for (StmtId inner : loops::StatementsUnder(f_, stmt.body)) {
      if (At(inner).kind == StmtKind::kSetSlot) return false;
    }
    return !outermost || OwnScratch(f_, id).empty() || CanPrivatise(f_, id);
  }

  // Lanes to try for a loop: a register's worth, or several for independent chains of additions. 1:
  // not at all.
  int LanesOf(StmtId id, bool outermost) const {
    if (!Legal(id, outermost)) return 1;
    const Stmt& stmt = At(id);
    const double trips = CostModel::Trips(f_, stmt);
    int lanes = std::max(1, target_.vector_bits / WidestBits(id));
    if (trips < 2) return 1;
    const bool chains = stmt.mark == LoopMark::kReduce || HasReduction(stmt);
    if (chains && !HasMaths(stmt)) {
      for (int more = kAccumulators; more > 1; more /= 2) {
        if (lanes * more <= kMaxLanes && lanes * more <= trips) return lanes * more;
      }
    }
    while (lanes > 4 && lanes >= 2 * trips) lanes /= 2;
    return std::min(lanes, kMaxLanes);
  }

  bool HasReduction(const Stmt& stmt) const {
    for (StmtId id : loops::StatementsUnder(f_, stmt.body)) {
      if (At(id).kind == StmtKind::kFor && At(id).mark == LoopMark::kReduce) return true;
    }
    return false;
  }

  bool HasMaths(const Stmt& stmt) const {
    const std::vector<bool> live = Reachable(f_, stmt.body);
    for (size_t i = 0; i < f_.exprs.size(); ++i) {
      const Expr& e = f_.exprs[i];
      if (!live[i]) continue;
      if (e.kind == ExprKind::kUnary && e.unary >= UnaryOp::kExp && e.unary <= UnaryOp::kLogistic)
        return true;
      if (e.kind == ExprKind::kBinary && e.binary == BinaryOp::kPow) return true;
    }
    return false;
  }

  const Function& f_;
  const Target& target_;
};

// Moves a parallel loop of lanes inside the parallel loops that make up its whole body, as far as
// their bounds allow.
void SinkLanes(Schedule& schedule) {
  Function& f = schedule.function;
  std::map<StmtId, int> lanes;
  for (const auto& [id, count] : schedule.lanes) {
    StmtId at = id;
    while (CanSink(f, at)) {
      Stmt& outer = f.stmts[static_cast<size_t>(at)];
      const StmtId next = outer.body[0];
      Stmt& inner = f.stmts[static_cast<size_t>(next)];
      std::swap(outer.id, inner.id);
      std::swap(outer.args, inner.args);
      at = next;
    }
    lanes[at] = count;
  }
  schedule.lanes = std::move(lanes);
}

}  // namespace

void ChooseLanes(const Target& target, Schedule& schedule) {
  schedule.lanes = Chooser(schedule.function, target).OfBody(schedule.function.body, true).lanes;
  SinkLanes(schedule);
  PrivatiseScratch(schedule);
  TileTransposes(schedule);
}

}  // namespace quench::codegen
