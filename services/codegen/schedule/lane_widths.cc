#include "services/codegen/schedule/lane_widths.h"

#include <algorithm>
#include <numeric>

#include "common/loops/analysis.h"
#include "services/codegen/schedule/rebuild.h"

namespace quench::codegen {
namespace {

using loops::BinaryOp;
using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Function;
using loops::LoopAnalysis;
using loops::Stmt;
using loops::StmtId;
using loops::StmtKind;

constexpr int64_t kSmallBuffer = 64 << 10;  // bytes that stay in the nearest cache

// Divides the value for all values of the variables; `var` is a multiple of `multiple`. 0: it is 0.
int64_t DivisorOf(const Function& f, ExprId id, loops::VarId var, int64_t multiple) {
  const Expr& e = f.exprs[static_cast<size_t>(id)];
  if (e.kind == ExprKind::kInt) return std::abs(e.i);
  if (e.kind == ExprKind::kVar) {
    if (e.id == var) return multiple;
    for (const Stmt& stmt : f.stmts) {
      if (stmt.kind == StmtKind::kLet && stmt.id == e.id)
        return DivisorOf(f, stmt.args[0], var, multiple);
    }
    return 1;
  }
  if (e.kind != ExprKind::kBinary) return 1;
  const auto of = [&](size_t i) { return DivisorOf(f, e.args[i], var, multiple); };
  switch (e.binary) {
    case BinaryOp::kAdd:
    case BinaryOp::kSub:
      return std::gcd(of(0), of(1));
    case BinaryOp::kMul: {
      constexpr int64_t kEnough = 1 << 20;  // products stay small
      return std::gcd(of(0), kEnough) * std::gcd(of(1), kEnough);
    }
    default:
      return 1;
  }
}

class Widths {
 public:
  Widths(const Function& f, StmtId loop) : f_(f), loop_(At(f, loop)), analysis_(f, loop) {}

  // The most elements that a thread can do with one access of each buffer. 1: no more than one.
  int64_t Most() const {
    if (!IsStraight()) return 1;
    int64_t lanes = kWidestAccess;
    bool others = false, side_by_side = false;
    for (const loops::Access& access : loops::Accesses(f_, loop_.body)) {
      if (BufferOf(access).role == loops::BufferRole::kScratch) continue;
      const auto step = ElementStep(f_, analysis_, access.buffer, access.indices);
      if (step == 1) {
        side_by_side = true;
        const int64_t bytes = std::max(1, DataTypeBits(BufferOf(access).dtype) / 8);
        lanes = std::min(lanes, kWidestAccess / bytes);
        while (lanes > 1 && PlaceOf(access, lanes) % lanes != 0) lanes /= 2;
      } else if (access.is_store() || (step != 0 && !IsSmall(BufferOf(access)))) {
        return 1;
      } else {
        others = true;
      }
    }
    return others && !side_by_side ? 1 : lanes;
  }

 private:
  const loops::Buffer& BufferOf(const loops::Access& access) const {
    return f_.buffers[static_cast<size_t>(access.buffer)];
  }

  // Control flow that does not differ from lane to lane.
  bool IsStraight() const {
    for (const StmtId id : loops::StatementsUnder(f_, loop_.body)) {
      const Stmt& stmt = At(f_, id);
      if (stmt.kind == StmtKind::kWhile || stmt.kind == StmtKind::kSetSlot) return false;
      const size_t bounds = stmt.kind == StmtKind::kFor ? 2 : stmt.kind == StmtKind::kIf ? 1 : 0;
      for (size_t i = 0; i < bounds; ++i) {
        if (!analysis_.Invariant(stmt.args[i])) return false;
      }
    }
    return true;
  }

  // A divisor of the element at which the lanes of an access begin.
  int64_t PlaceOf(const loops::Access& access, int64_t lanes) const {
    const std::vector<ExprId>& dims = BufferOf(access).dims;
    int64_t place = 0, stride = 1;
    for (size_t d = access.indices.size(); d-- > 0;) {
      place = std::gcd(place, DivisorOf(f_, access.indices[d], loop_.id, lanes) * stride);
      stride = std::gcd(stride * DivisorOf(f_, dims[d], loops::kNone, 1), kWidestAccess);
    }
    return place;
  }

  bool IsSmall(const loops::Buffer& buffer) const {
    int64_t bytes = std::max(1, DataTypeBits(buffer.dtype) / 8);
    for (const ExprId dim : buffer.dims) {
      const auto size = loops::ConstantOf(f_, dim);
      if (!size || *size > kSmallBuffer) return false;
      bytes *= std::max<int64_t>(1, *size);
      if (bytes > kSmallBuffer) return false;
    }
    return true;
  }

  const Function& f_;
  const Stmt& loop_;
  LoopAnalysis analysis_;
};

}  // namespace

int64_t WidestLanes(const Function& function, StmtId loop) { return Widths(function, loop).Most(); }

}  // namespace quench::codegen
