// Simplification of integer expressions while they are built.
#include <optional>

#include "common/loops/builder.h"
#include "common/loops/fold.h"
#include "common/loops/scalar.h"

namespace quench::loops {
namespace {

bool Commutes(BinaryOp op) {
  return op == BinaryOp::kAdd || op == BinaryOp::kMul || op == BinaryOp::kMin ||
         op == BinaryOp::kMax || op == BinaryOp::kAnd || op == BinaryOp::kOr ||
         op == BinaryOp::kXor;
}

// `x op c`, c constant.
std::optional<E> SimplifyRightConstant(BinaryOp op, E x, E constant, int64_t c) {
  Builder& b = *x.builder();
  const DataType type = x.type();
  if (type == DataType::kBool) {
    if (op == BinaryOp::kAnd) return c != 0 ? x : constant;
    if (op == BinaryOp::kOr) return c != 0 ? constant : x;
    return std::nullopt;
  }
  const bool divides = op == BinaryOp::kDiv || op == BinaryOp::kFloorDiv;
  const bool rem = op == BinaryOp::kRem || op == BinaryOp::kFloorMod;
  if (c == 0 && (op == BinaryOp::kAdd || op == BinaryOp::kSub)) return x;
  if (c == 1 && (op == BinaryOp::kMul || divides)) return x;
  if (c == 0 && (op == BinaryOp::kMul || divides || rem)) return b.Int(0, type);
  if (c == 1 && rem) return b.Int(0, type);
  // (y + c1) + c2 and (y * c1) * c2.
  const Expr& e = b.expr(x.id());
  if (e.kind != ExprKind::kBinary) return std::nullopt;
  const Expr& inner = b.expr(e.args[1]);
  if (inner.kind != ExprKind::kInt) return std::nullopt;
  const E y(&b, e.args[0]);
  const bool sum = op == BinaryOp::kAdd || op == BinaryOp::kSub;
  if (sum && (e.binary == BinaryOp::kAdd || e.binary == BinaryOp::kSub)) {
    const int64_t first = e.binary == BinaryOp::kAdd ? inner.i : scalar::Neg(inner.i);
    const int64_t total =
        WrapInteger(type, op == BinaryOp::kAdd ? scalar::Add(first, c) : scalar::Sub(first, c));
    const int64_t negated = WrapInteger(type, scalar::Neg(total));
    if (IsSigned(type) && total < 0 && negated > 0) return y - b.Int(negated, type);
    return y + b.Int(total, type);
  }
  if (op == BinaryOp::kMul && e.binary == BinaryOp::kMul) {
    return y * b.Int(FoldInteger(BinaryOp::kMul, type, inner.i, c), type);
  }
  return std::nullopt;
}

}  // namespace

std::optional<E> Simplify(BinaryOp op, E a, E b) {
  const DataType type = a.type();
  if (IsFloat(type) || IsComplex(type) || DataTypeBits(type) < 8) return std::nullopt;
  Builder& builder = *a.builder();
  const Expr& left = builder.expr(a.id());
  const Expr& right = builder.expr(b.id());
  const bool left_known = left.kind == ExprKind::kInt;
  const bool right_known = right.kind == ExprKind::kInt;
  if (left_known && right_known) {
    return builder.Int(FoldInteger(op, type, left.i, right.i),
                       IsComparison(op) ? DataType::kBool : type);
  }
  if (right_known) return SimplifyRightConstant(op, a, b, right.i);
  // A constant on the left of a commutative operation goes to the right, where the rules above see
  // it.
  if (left_known && Commutes(op)) return Binary(op, b, a);
  if (left_known && left.i == 0 &&
      (op == BinaryOp::kDiv || op == BinaryOp::kFloorDiv || op == BinaryOp::kRem ||
       op == BinaryOp::kFloorMod)) {
    return a;
  }
  if (a.id() == b.id()) {
    if (op == BinaryOp::kSub || op == BinaryOp::kXor) {
      if (type != DataType::kBool || op == BinaryOp::kXor) return builder.Int(0, type);
    }
    if (op == BinaryOp::kMin || op == BinaryOp::kMax || op == BinaryOp::kAnd || op == BinaryOp::kOr)
      return a;
  }
  return std::nullopt;
}

}  // namespace quench::loops
