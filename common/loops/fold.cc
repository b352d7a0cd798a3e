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

}  // namespace quench::loops
