// Runs loops IR the slow and obvious way, with arithmetic of its own: what the interpreter is held
// against.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "common/base/half.h"
#include "common/loops/interpreter.h"

namespace quench::loops {

class Reference {
 public:
  Reference(const Function& function, std::vector<BufferView> views, std::vector<int64_t> slots)
      : f_(function),
        views_(std::move(views)),
        slots_(std::move(slots)),
        locals_(function.locals.size()) {}

  void Run() { Body(f_.body); }

 private:
  // Integers and bools in `i` (u64 as its two's complement), floats in `f`.
  struct Value {
    int64_t i = 0;
    double f = 0;
  };

  static int64_t Wrap(DataType type, __int128 value) {
    if (type == DataType::kBool) return value != 0 ? 1 : 0;
    const int bits = DataTypeBits(type);
    unsigned __int128 low =
        static_cast<unsigned __int128>(value) & ((static_cast<unsigned __int128>(1) << bits) - 1);
    const bool negative = IsSigned(type) && (low >> (bits - 1)) != 0;
    const __int128 full = negative ? static_cast<__int128>(low) - (static_cast<__int128>(1) << bits)
                                   : static_cast<__int128>(low);
    return static_cast<int64_t>(full);
  }

  // The mathematical value of an integer register.
  static __int128 Wide(DataType type, int64_t i) {
    return type == DataType::kU64 ? static_cast<__int128>(static_cast<uint64_t>(i))
                                  : static_cast<__int128>(i);
  }

  static double Round(DataType type, double f) {
    switch (type) {
      case DataType::kF64:
        return f;
      case DataType::kF16:
        return HalfToFloat(FloatToHalf(static_cast<float>(f)));
      case DataType::kBF16:
        return Bfloat16ToFloat(FloatToBfloat16(static_cast<float>(f)));
      default:
        return static_cast<float>(f);
    }
  }

  Value Eval(ExprId id) {
    const Expr& e = f_.exprs[static_cast<size_t>(id)];
    switch (e.kind) {
      case ExprKind::kInt:
        return {e.i, 0};
      case ExprKind::kFloat:
        return {0, e.f};
      case ExprKind::kVar:
        return vars_[e.id];
      case ExprKind::kLocal:
        return locals_[static_cast<size_t>(e.id)];
      case ExprKind::kSlot:
        return {slots_[static_cast<size_t>(e.id)], 0};
      case ExprKind::kLoad:
        return Load(e);
      case ExprKind::kSelect:
        return Eval(e.args[Eval(e.args[0]).i != 0 ? 1 : 2]);
      case ExprKind::kCast:
        return Cast(TypeOf(e.args[0]), e.type, Eval(e.args[0]));
      case ExprKind::kUnary:
        return Unary(e, Eval(e.args[0]));
      case ExprKind::kBinary: {
        const Value a = Eval(e.args[0]);
        const Value b = Eval(e.args[1]);
        return IsFloat(TypeOf(e.args[0])) ? FloatBinary(e, a.f, b.f) : IntegerBinary(e, a.i, b.i);
      }
      case ExprKind::kParam:
        break;
    }
    return {};
  }

  DataType TypeOf(ExprId id) const { return f_.exprs[static_cast<size_t>(id)].type; }

  static Value Cast(DataType from, DataType to, Value v) {
    if (IsFloat(from)) {
      if (IsFloat(to)) return {0, Round(to, v.f)};
      if (to == DataType::kBool) return {v.f != 0 ? 1 : 0, 0};
      if (std::isnan(v.f)) return {0, 0};
      const int bits = DataTypeBits(to);
      const __int128 lo = IsSigned(to) ? -(static_cast<__int128>(1) << (bits - 1)) : 0;
      const __int128 hi = (static_cast<__int128>(1) << (IsSigned(to) ? bits - 1 : bits)) - 1;
      if (std::fabs(v.f) >= 1e30) return {static_cast<int64_t>(v.f < 0 ? lo : hi), 0};
      return {static_cast<int64_t>(std::min(std::max(static_cast<__int128>(v.f), lo), hi)), 0};
    }
    const __int128 wide = Wide(from, v.i);
    if (!IsFloat(to)) return {Wrap(to, wide), 0};
    if (to == DataType::kF64) return {0, static_cast<double>(wide)};
    return {0, Round(to, static_cast<float>(wide))};
  }

  Value Unary(const Expr& e, Value v) const {
    const DataType type = TypeOf(e.args[0]);
    if (!IsFloat(type)) {
      if (e.unary == UnaryOp::kNot)
        return {type == DataType::kBool ? 1 - v.i : Wrap(type, ~Wide(type, v.i)), 0};
      const bool negate = e.unary == UnaryOp::kNeg || v.i < 0;
      if (e.unary == UnaryOp::kAbs && IsUnsigned(type)) return v;
      return {negate ? Wrap(type, -Wide(type, v.i)) : v.i, 0};
    }
    switch (e.unary) {
      case UnaryOp::kNeg:
        return {0, -v.f};
      case UnaryOp::kAbs:
        return {0, std::fabs(v.f)};
      case UnaryOp::kSqrt:
        return {0, Round(type, std::sqrt(v.f))};
      case UnaryOp::kFloor:
        return {0, std::floor(v.f)};
      case UnaryOp::kCeil:
        return {0, std::ceil(v.f)};
      case UnaryOp::kTrunc:
        return {0, std::trunc(v.f)};
      case UnaryOp::kRoundEven:
        return {0, std::nearbyint(v.f)};
      case UnaryOp::kIsNan:
        return {std::isnan(v.f) ? 1 : 0, 0};
      case UnaryOp::kIsInf:
        return {std::isinf(v.f) ? 1 : 0, 0};
      default:
        return {0, NAN};  // the generators leave out what differs between libms
    }
  }

  // f32 operations in double, rounded once more: exact for + - * / (double has more than twice the
  // bits).
  Value FloatBinary(const Expr& e, double a, double b) const {
    const DataType type = TypeOf(e.args[0]);
    switch (e.binary) {
      case BinaryOp::kAdd:
        return {0, Round(type, a + b)};
      case BinaryOp::kSub:
        return {0, Round(type, a - b)};
      case BinaryOp::kMul:
        return {0, Round(type, a * b)};
      case BinaryOp::kDiv:
        return {0, Round(type, a / b)};
      case BinaryOp::kMin:
        return {0, std::isnan(a) || std::isnan(b) ? NAN : a < b ? a : b};
      case BinaryOp::kMax:
        return {0, std::isnan(a) || std::isnan(b) ? NAN : a > b ? a : b};
      case BinaryOp::kRem:
        return {0, std::fmod(a, b)};
      case BinaryOp::kEq:
        return {a == b ? 1 : 0, 0};
      case BinaryOp::kNe:
        return {a != b ? 1 : 0, 0};
      case BinaryOp::kLt:
        return {a < b ? 1 : 0, 0};
      case BinaryOp::kLe:
        return {a <= b ? 1 : 0, 0};
      case BinaryOp::kGt:
        return {a > b ? 1 : 0, 0};
      case BinaryOp::kGe:
        return {a >= b ? 1 : 0, 0};
      default:
        return {0, NAN};
    }
  }

  Value IntegerBinary(const Expr& e, int64_t left, int64_t right) const {
    const DataType type = TypeOf(e.args[0]);
    const __int128 a = Wide(type, left);
    const __int128 b = Wide(type, right);
    const int bits = DataTypeBits(type);
    const auto floor_div = [](__int128 x, __int128 y) {
      const __int128 q = x / y;
      return q * y != x && (x < 0) != (y < 0) ? q - 1 : q;
    };
    switch (e.binary) {
      case BinaryOp::kAdd:
        return {Wrap(type, a + b), 0};
      case BinaryOp::kSub:
        return {Wrap(type, a - b), 0};
      case BinaryOp::kMul:  // the product of two u64 fits unsigned __int128
        return {Wrap(type, static_cast<__int128>(static_cast<unsigned __int128>(a) *
                                                 static_cast<unsigned __int128>(b))),
                0};
      case BinaryOp::kDiv:
        return {b == 0 ? 0 : Wrap(type, a / b), 0};
      case BinaryOp::kRem:
        return {b == 0 ? 0 : Wrap(type, a % b), 0};
      case BinaryOp::kFloorDiv:
        return {b == 0 ? 0 : Wrap(type, floor_div(a, b)), 0};
      case BinaryOp::kFloorMod:
        return {b == 0 ? 0 : Wrap(type, a - floor_div(a, b) * b), 0};
      case BinaryOp::kMin:
        return {Wrap(type, std::min(a, b)), 0};
      case BinaryOp::kMax:
        return {Wrap(type, std::max(a, b)), 0};
      case BinaryOp::kAnd:
        return {Wrap(type, a & b), 0};
      case BinaryOp::kOr:
        return {Wrap(type, a | b), 0};
      case BinaryOp::kXor:
        return {Wrap(type, a ^ b), 0};
      case BinaryOp::kShl:
        return {b < 0 || b >= bits
                    ? 0
                    : Wrap(type, a * (static_cast<__int128>(1) << static_cast<int>(b))),
                0};
      case BinaryOp::kShr:
        return {b < 0 || b >= bits ? (a < 0 ? -1 : 0) : Wrap(type, a >> static_cast<int>(b)), 0};
      case BinaryOp::kEq:
        return {a == b ? 1 : 0, 0};
      case BinaryOp::kNe:
        return {a != b ? 1 : 0, 0};
      case BinaryOp::kLt:
        return {a < b ? 1 : 0, 0};
      case BinaryOp::kLe:
        return {a <= b ? 1 : 0, 0};
      case BinaryOp::kGt:
        return {a > b ? 1 : 0, 0};
      case BinaryOp::kGe:
        return {a >= b ? 1 : 0, 0};
      case BinaryOp::kPow:
        break;
    }
    return {};
  }

  std::byte* Address(BufferId buffer, std::span<const ExprId> indices) {
    const BufferView& view = views_[static_cast<size_t>(buffer)];
    int64_t offset = 0;
    for (size_t d = 0; d < indices.size(); ++d) offset = offset * view.dims[d] + Eval(indices[d]).i;
    return view.data + offset * DataTypeBits(f_.buffers[static_cast<size_t>(buffer)].dtype) / 8;
  }

  Value Load(const Expr& e) {
    const std::byte* from = Address(e.id, e.args);
    uint64_t bits = 0;
    std::memcpy(&bits, from, static_cast<size_t>(DataTypeBits(e.type) / 8));
    switch (e.type) {
      case DataType::kF32:
        return {0, std::bit_cast<float>(static_cast<uint32_t>(bits))};
      case DataType::kF64:
        return {0, std::bit_cast<double>(bits)};
      case DataType::kF16:
        return {0, HalfToFloat(static_cast<uint16_t>(bits))};
      case DataType::kBF16:
        return {0, Bfloat16ToFloat(static_cast<uint16_t>(bits))};
      default:
        return {Wrap(e.type, static_cast<__int128>(bits)), 0};
    }
  }

  void Store(const Stmt& stmt) {
    const DataType type = f_.buffers[static_cast<size_t>(stmt.id)].dtype;
    const Value v = Eval(stmt.args[0]);
    uint64_t bits = static_cast<uint64_t>(v.i);
    if (type == DataType::kF32) bits = std::bit_cast<uint32_t>(static_cast<float>(v.f));
    if (type == DataType::kF64) bits = std::bit_cast<uint64_t>(v.f);
    if (type == DataType::kF16) bits = FloatToHalf(static_cast<float>(v.f));
    if (type == DataType::kBF16) bits = FloatToBfloat16(static_cast<float>(v.f));
    std::memcpy(Address(stmt.id, std::span<const ExprId>(stmt.args).subspan(1)), &bits,
                static_cast<size_t>(DataTypeBits(type) / 8));
  }

  void Body(const std::vector<StmtId>& body) {
    for (const StmtId id : body) Statement(f_.stmts[static_cast<size_t>(id)]);
  }

  void Statement(const Stmt& stmt) {
    switch (stmt.kind) {
      case StmtKind::kFor: {
        const int64_t end = Eval(stmt.args[1]).i;
        for (int64_t i = Eval(stmt.args[0]).i; i < end; ++i) {
          vars_[stmt.id] = {i, 0};
          Body(stmt.body);
        }
        break;
      }
      case StmtKind::kWhile:
        while (Eval(stmt.args[0]).i != 0) Body(stmt.body);
        break;
      case StmtKind::kIf:
        Body(Eval(stmt.args[0]).i != 0 ? stmt.body : stmt.otherwise);
        break;
      case StmtKind::kLet:
        vars_[stmt.id] = Eval(stmt.args[0]);
        break;
      case StmtKind::kSet:
        locals_[static_cast<size_t>(stmt.id)] = Eval(stmt.args[0]);
        break;
      case StmtKind::kStore:
        Store(stmt);
        break;
      case StmtKind::kSetSlot:
        slots_[static_cast<size_t>(stmt.id)] = Eval(stmt.args[0]).i;
        break;
      case StmtKind::kCheck:
        break;
    }
  }

  const Function& f_;
  std::vector<BufferView> views_;
  std::vector<int64_t> slots_;
  std::vector<Value> locals_;
  std::map<VarId, Value> vars_;
};

}  // namespace quench::loops
