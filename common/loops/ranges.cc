#include "common/loops/ranges.h"

#include <algorithm>

#include "common/loops/fold.h"

namespace quench::loops {
namespace {

using Wide = __int128;

// The range, or everything when a bound does not fit: the operation may wrap.
Range Fit(Wide lo, Wide hi) {
  if (lo < INT64_MIN || hi > INT64_MAX) return {};
  return {static_cast<int64_t>(lo), static_cast<int64_t>(hi)};
}

Range Product(Range a, Range b) {
  const Wide corners[] = {Wide{a.lo} * b.lo, Wide{a.lo} * b.hi, Wide{a.hi} * b.lo,
                          Wide{a.hi} * b.hi};
  return Fit(*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4));
}

// Division by a positive constant is monotone, both ways of rounding.
Range Quotient(BinaryOp op, Range a, Range b) {
  if (!b.IsPoint() || b.lo <= 0) return {};
  const auto divide = [&](int64_t x) {
    return op == BinaryOp::kDiv ? scalar::Div(x, b.lo) : scalar::FloorDiv(x, b.lo);
  };
  return {divide(a.lo), divide(a.hi)};
}

Range Remainder(BinaryOp op, Range a, Range b) {
  if (b.lo <= 0) return {};
  if (a.lo >= 0 && a.hi < b.lo) return a;
  if (op == BinaryOp::kFloorMod || a.lo >= 0) return {0, b.hi - 1};
  return {1 - b.hi, b.hi - 1};
}

// Values that a type can take, where that says something about an i64.
Range OfType(DataType type) {
  switch (type) {
    case DataType::kBool:
      return {0, 1};
    case DataType::kU8:
      return {0, UINT8_MAX};
    case DataType::kI8:
      return {INT8_MIN, INT8_MAX};
    case DataType::kU16:
      return {0, UINT16_MAX};
    case DataType::kI16:
      return {INT16_MIN, INT16_MAX};
    case DataType::kU32:
      return {0, UINT32_MAX};
    case DataType::kI32:
      return {INT32_MIN, INT32_MAX};
    default:
      return {};
  }
}

Range Compare(BinaryOp op, Range a, Range b) {
  constexpr Range kTrue{1, 1};
  constexpr Range kFalse{0, 0};
  switch (op) {
    case BinaryOp::kGt:
      std::swap(a, b);
      [[fallthrough]];
    case BinaryOp::kLt:
      return a.hi < b.lo ? kTrue : a.lo >= b.hi ? kFalse : Range{0, 1};
    case BinaryOp::kGe:
      std::swap(a, b);
      [[fallthrough]];
    case BinaryOp::kLe:
      return a.hi <= b.lo ? kTrue : a.lo > b.hi ? kFalse : Range{0, 1};
    case BinaryOp::kEq:
      if (a.hi < b.lo || b.hi < a.lo) return kFalse;
      return a.IsPoint() && b.IsPoint() ? kTrue : Range{0, 1};
    default:
      if (a.hi < b.lo || b.hi < a.lo) return kTrue;
      return a.IsPoint() && b.IsPoint() ? kFalse : Range{0, 1};
  }
}

}  // namespace

Ranges::Ranges(const Function& function, std::span<const int64_t> slots)
    : function_(function),
      slots_(slots),
      written_slots_(slots.size()),
      vars_(function.vars.size()),
      memo_(function.exprs.size()),
      known_(function.exprs.size()) {
  for (const Stmt& stmt : function.stmts) {
    if (stmt.kind == StmtKind::kSetSlot && static_cast<size_t>(stmt.id) < slots.size()) {
      written_slots_[static_cast<size_t>(stmt.id)] = true;
    }
  }
}

const Range& Ranges::Of(ExprId id) {
  const size_t index = static_cast<size_t>(id);
  if (!known_[index]) {
    memo_[index] = Compute(function_.exprs[index]);
    known_[index] = true;
  }
  return memo_[index];
}

std::optional<int64_t> Ranges::ConstantOf(ExprId id) {
  const Expr& e = function_.exprs[static_cast<size_t>(id)];
  if (e.kind == ExprKind::kInt) return e.i;
  if (e.type != DataType::kI64 && e.type != DataType::kBool) return std::nullopt;
  const Range& range = Of(id);
  if (!range.IsPoint()) return std::nullopt;
  return range.lo;
}

Range Ranges::Compute(const Expr& e) {
  const bool tracked = OfType(e.type).hi != INT64_MAX || e.type == DataType::kI64;
  if (!tracked) return {};
  switch (e.kind) {
    case ExprKind::kInt:
      return {e.i, e.i};
    case ExprKind::kVar:
      return e.type == DataType::kI64 || e.type == DataType::kBool
                 ? vars_[static_cast<size_t>(e.id)]
                 : OfType(e.type);
    case ExprKind::kSlot: {
      const size_t slot = static_cast<size_t>(e.id);
      if (slot >= slots_.size() || written_slots_[slot]) return {};
      return {slots_[slot], slots_[slot]};
    }
    case ExprKind::kUnary: {
      if (e.type != DataType::kI64) break;
      const Range a = Of(e.args[0]);
      if (e.unary == UnaryOp::kNeg) return Fit(-Wide{a.hi}, -Wide{a.lo});
      if (e.unary == UnaryOp::kAbs && a.lo >= 0) return a;
      if (e.unary == UnaryOp::kAbs)
        return Fit(a.hi > 0 ? 0 : -Wide{a.hi}, std::max(-Wide{a.lo}, Wide{a.hi}));
      break;
    }
    case ExprKind::kBinary: {
      const DataType operand = function_.exprs[static_cast<size_t>(e.args[0])].type;
      if (operand == DataType::kI64 || operand == DataType::kBool) return Binary(e);
      break;
    }
    case ExprKind::kSelect: {
      const Range condition = Of(e.args[0]);
      const Range a = Of(e.args[1]);
      const Range b = Of(e.args[2]);
      if (condition.IsPoint()) return condition.lo != 0 ? a : b;
      return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
    }
    case ExprKind::kCast: {
      const DataType from = function_.exprs[static_cast<size_t>(e.args[0])].type;
      if (e.type != DataType::kI64 || (!IsInteger(from) && from != DataType::kBool)) break;
      const Range a = Of(e.args[0]);
      if (from != DataType::kU64) return a;
      break;
    }
    default:
      break;
  }
  return OfType(e.type);
}

Range Ranges::Binary(const Expr& e) {
  const Range a = Of(e.args[0]);
  const Range b = Of(e.args[1]);
  const DataType type = function_.exprs[static_cast<size_t>(e.args[0])].type;
  if (a.IsPoint() && b.IsPoint()) {
    const int64_t value = FoldInteger(e.binary, type, a.lo, b.lo);
    return {value, value};
  }
  if (IsComparison(e.binary)) return Compare(e.binary, a, b);
  switch (e.binary) {
    case BinaryOp::kAdd:
      return Fit(Wide{a.lo} + b.lo, Wide{a.hi} + b.hi);
    case BinaryOp::kSub:
      return Fit(Wide{a.lo} - b.hi, Wide{a.hi} - b.lo);
    case BinaryOp::kMul:
      return Product(a, b);
    case BinaryOp::kDiv:
    case BinaryOp::kFloorDiv:
      return Quotient(e.binary, a, b);
    case BinaryOp::kRem:
    case BinaryOp::kFloorMod:
      return Remainder(e.binary, a, b);
    case BinaryOp::kMin:
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case BinaryOp::kMax:
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    case BinaryOp::kAnd:
      if (type == DataType::kBool) return {a.lo & b.lo, a.hi & b.hi};
      return {};
    case BinaryOp::kOr:
      if (type == DataType::kBool) return {a.lo | b.lo, a.hi | b.hi};
      return {};
    default:
      return OfType(e.type);
  }
}

}  // namespace quench::loops
