#include "common/loops/fold.h"

#include "common/base/status.h"

namespace quench::loops {
namespace {

template <typename T>
int64_t FoldTyped(BinaryOp op, T a, T b) {
  const auto wide = [](auto value) { return static_cast<int64_t>(value); };
  switch (op) {
    case BinaryOp::kEq:
      return wide(a == b);
    case BinaryOp::kNe:
      return wide(a != b);
    case BinaryOp::kLt:
      return wide(a < b);
    case BinaryOp::kLe:
      return wide(a <= b);
    case BinaryOp::kGt:
      return wide(a > b);
    case BinaryOp::kGe:
      return wide(a >= b);
    case BinaryOp::kAnd:
      return wide(a & b);
    case BinaryOp::kOr:
      return wide(a | b);
    case BinaryOp::kXor:
      return wide(a ^ b);
    case BinaryOp::kMin:
      return wide(scalar::Min(a, b));
    case BinaryOp::kMax:
      return wide(scalar::Max(a, b));
    default:
      break;
  }
  if constexpr (!scalar::kIsBool<T>) {
    switch (op) {
      case BinaryOp::kAdd:
        return wide(scalar::Add(a, b));
      case BinaryOp::kSub:
        return wide(scalar::Sub(a, b));
      case BinaryOp::kMul:
        return wide(scalar::Mul(a, b));
      case BinaryOp::kDiv:
        return wide(scalar::Div(a, b));
      case BinaryOp::kRem:
        return wide(scalar::Rem(a, b));
      case BinaryOp::kFloorDiv:
        return wide(scalar::FloorDiv(a, b));
      case BinaryOp::kFloorMod:
        return wide(scalar::FloorMod(a, b));
      case BinaryOp::kPow:
        return wide(scalar::Pow(a, b));
      case BinaryOp::kShl:
        return wide(scalar::Shl(a, b));
      case BinaryOp::kShr:
        return wide(scalar::Shr(a, b));
      default:
        break;
    }
  }
  QUENCH_CHECK(false && "arithmetic on bool");
  return 0;
}

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

int64_t WrapInteger(DataType type, int64_t value) {
  return scalar::VisitInteger(
      type, [&](auto zero) { return static_cast<int64_t>(static_cast<decltype(zero)>(value)); });
}

int64_t FoldInteger(BinaryOp op, DataType type, int64_t a, int64_t b) {
  return scalar::VisitInteger(type, [&](auto zero) {
    using T = decltype(zero);
    return FoldTyped<T>(op, static_cast<T>(a), static_cast<T>(b));
  });
}

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
