#include "common/loops/lane_ops.h"

#include <cmath>
#include <cstring>

#include "common/base/float8.h"
#include "common/base/half.h"
#include "common/loops/scalar.h"

// Results may coincide with operands (never overlap otherwise), so iterations are independent.
#if defined(__clang__)
#define QUENCH_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define QUENCH_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace quench::loops {
namespace {

// ---- Operations as types, so that tables of them can be written once ----

#define QUENCH_BINARY(NAME)      \
  struct NAME##Op {              \
    template <typename T>        \
    static T Of(T a, T b) {      \
      return scalar::NAME(a, b); \
    }                            \
  }
QUENCH_BINARY(Add);
QUENCH_BINARY(Sub);
QUENCH_BINARY(Mul);
QUENCH_BINARY(Div);
QUENCH_BINARY(Rem);
QUENCH_BINARY(FloorDiv);
QUENCH_BINARY(FloorMod);
QUENCH_BINARY(Min);
QUENCH_BINARY(Max);
QUENCH_BINARY(Pow);
QUENCH_BINARY(Shl);
QUENCH_BINARY(Shr);
#undef QUENCH_BINARY

#define QUENCH_INFIX(NAME, RESULT, SYMBOL)    \
  struct NAME##Op {                           \
    template <typename T>                     \
    static RESULT Of(T a, T b) {              \
      return static_cast<RESULT>(a SYMBOL b); \
    }                                         \
  }
QUENCH_INFIX(And, T, &);
QUENCH_INFIX(Or, T, |);
QUENCH_INFIX(Xor, T, ^);
QUENCH_INFIX(Eq, bool, ==);
QUENCH_INFIX(Ne, bool, !=);
QUENCH_INFIX(Lt, bool, <);
QUENCH_INFIX(Le, bool, <=);
QUENCH_INFIX(Gt, bool, >);
QUENCH_INFIX(Ge, bool, >=);
#undef QUENCH_INFIX

struct NegOp {
  template <typename T>
  static T Of(T a) {
    return scalar::Neg(a);
  }
};
struct AbsOp {
  template <typename T>
  static T Of(T a) {
    return scalar::Abs(a);
  }
};
struct NotOp {
  template <typename T>
  static T Of(T a) {
    if constexpr (scalar::kIsBool<T>)
      return !a;
    else
      return static_cast<T>(~a);
  }
};

#define QUENCH_MATHS(NAME, FUNCTION) \
  struct NAME##Op {                  \
    template <typename T>            \
    static T Of(T a) {               \
      return std::FUNCTION(a);       \
    }                                \
  }
QUENCH_MATHS(Sqrt, sqrt);
QUENCH_MATHS(Exp, exp);
QUENCH_MATHS(Log, log);
QUENCH_MATHS(Sin, sin);
QUENCH_MATHS(Cos, cos);
QUENCH_MATHS(Tan, tan);
QUENCH_MATHS(Asin, asin);
QUENCH_MATHS(Acos, acos);
QUENCH_MATHS(Atan, atan);
QUENCH_MATHS(Sinh, sinh);
QUENCH_MATHS(Cosh, cosh);
QUENCH_MATHS(Tanh, tanh);
QUENCH_MATHS(Asinh, asinh);
QUENCH_MATHS(Acosh, acosh);
QUENCH_MATHS(Atanh, atanh);
QUENCH_MATHS(Erf, erf);
QUENCH_MATHS(Floor, floor);
QUENCH_MATHS(Ceil, ceil);
QUENCH_MATHS(Trunc, trunc);
QUENCH_MATHS(RoundEven, nearbyint);  // the rounding mode is never changed from to-nearest-even
#undef QUENCH_MATHS

struct LogisticOp {
  template <typename T>
  static T Of(T a) {
    return 1 / (std::exp(-a) + 1);
  }
};

struct IsNanOp {
  template <typename T>
  static bool Of(T a) {
    return std::isnan(a);
  }
};
struct IsInfOp {
  template <typename T>
  static bool Of(T a) {
    return std::isinf(a);
  }
};

// ---- One element, many elements ----

template <typename R, typename T, typename Op>
Lanes<UnaryFn> UnaryLanes() {
  return {[](void* d, const void* a, int64_t) {
            *static_cast<R*>(d) = Op::Of(*static_cast<const T*>(a));
          },
          [](void* d, const void* a, int64_t n) {
            R* out = static_cast<R*>(d);
            const T* x = static_cast<const T*>(a);
            QUENCH_INDEPENDENT
            for (int64_t i = 0; i < n; ++i) out[i] = Op::Of(x[i]);
          }};
}

template <typename R, typename T, typename Op>
Lanes<BinaryFn> BinaryLanes() {
  return {[](void* d, const void* a, const void* b, int64_t) {
            *static_cast<R*>(d) = Op::Of(*static_cast<const T*>(a), *static_cast<const T*>(b));
          },
          [](void* d, const void* a, const void* b, int64_t n) {
            R* out = static_cast<R*>(d);
            const T* x = static_cast<const T*>(a);
            const T* y = static_cast<const T*>(b);
            QUENCH_INDEPENDENT
            for (int64_t i = 0; i < n; ++i) out[i] = Op::Of(x[i], y[i]);
          }};
}

// Calls f(T{}) with the register type of `type`.
template <typename F>
auto VisitRegister(DataType type, F&& f) {
  if (type == DataType::kF64) return f(double{});
  if (IsFloat(type)) return f(float{});
  return scalar::VisitInteger(type, f);
}

template <typename T>
Lanes<UnaryFn> UnaryOn(UnaryOp op) {
  if constexpr (!scalar::kIsFloat<T>) {
    if (op == UnaryOp::kNot) return UnaryLanes<T, T, NotOp>();
  }
  if constexpr (!scalar::kIsBool<T>) {
    if (op == UnaryOp::kNeg) return UnaryLanes<T, T, NegOp>();
    if (op == UnaryOp::kAbs) return UnaryLanes<T, T, AbsOp>();
  }
  if constexpr (scalar::kIsFloat<T>) {
    switch (op) {
      case UnaryOp::kSqrt:
        return UnaryLanes<T, T, SqrtOp>();
      case UnaryOp::kExp:
        return UnaryLanes<T, T, ExpOp>();
      case UnaryOp::kLog:
        return UnaryLanes<T, T, LogOp>();
      case UnaryOp::kSin:
        return UnaryLanes<T, T, SinOp>();
      case UnaryOp::kCos:
        return UnaryLanes<T, T, CosOp>();
      case UnaryOp::kTan:
        return UnaryLanes<T, T, TanOp>();
      case UnaryOp::kAsin:
        return UnaryLanes<T, T, AsinOp>();
      case UnaryOp::kAcos:
        return UnaryLanes<T, T, AcosOp>();
      case UnaryOp::kAtan:
        return UnaryLanes<T, T, AtanOp>();
      case UnaryOp::kSinh:
        return UnaryLanes<T, T, SinhOp>();
      case UnaryOp::kCosh:
        return UnaryLanes<T, T, CoshOp>();
      case UnaryOp::kTanh:
        return UnaryLanes<T, T, TanhOp>();
      case UnaryOp::kAsinh:
        return UnaryLanes<T, T, AsinhOp>();
      case UnaryOp::kAcosh:
        return UnaryLanes<T, T, AcoshOp>();
      case UnaryOp::kAtanh:
        return UnaryLanes<T, T, AtanhOp>();
      case UnaryOp::kErf:
        return UnaryLanes<T, T, ErfOp>();
      case UnaryOp::kLogistic:
        return UnaryLanes<T, T, LogisticOp>();
      case UnaryOp::kFloor:
        return UnaryLanes<T, T, FloorOp>();
      case UnaryOp::kCeil:
        return UnaryLanes<T, T, CeilOp>();
      case UnaryOp::kTrunc:
        return UnaryLanes<T, T, TruncOp>();
      case UnaryOp::kRoundEven:
        return UnaryLanes<T, T, RoundEvenOp>();
      case UnaryOp::kIsNan:
        return UnaryLanes<bool, T, IsNanOp>();
      case UnaryOp::kIsInf:
        return UnaryLanes<bool, T, IsInfOp>();
      default:
        break;
    }
  }
  return {};
}

template <typename T>
Lanes<BinaryFn> BinaryOn(BinaryOp op) {
  switch (op) {
    case BinaryOp::kMin:
      return BinaryLanes<T, T, MinOp>();
    case BinaryOp::kMax:
      return BinaryLanes<T, T, MaxOp>();
    case BinaryOp::kEq:
      return BinaryLanes<bool, T, EqOp>();
    case BinaryOp::kNe:
      return BinaryLanes<bool, T, NeOp>();
    case BinaryOp::kLt:
      return BinaryLanes<bool, T, LtOp>();
    case BinaryOp::kLe:
      return BinaryLanes<bool, T, LeOp>();
    case BinaryOp::kGt:
      return BinaryLanes<bool, T, GtOp>();
    case BinaryOp::kGe:
      return BinaryLanes<bool, T, GeOp>();
    default:
      break;
  }
  if constexpr (!scalar::kIsFloat<T>) {
    if (op == BinaryOp::kAnd) return BinaryLanes<T, T, AndOp>();
    if (op == BinaryOp::kOr) return BinaryLanes<T, T, OrOp>();
    if (op == BinaryOp::kXor) return BinaryLanes<T, T, XorOp>();
    if constexpr (!scalar::kIsBool<T>) {
      if (op == BinaryOp::kShl) return BinaryLanes<T, T, ShlOp>();
      if (op == BinaryOp::kShr) return BinaryLanes<T, T, ShrOp>();
    }
  }
  if constexpr (!scalar::kIsBool<T>) {
    switch (op) {
      case BinaryOp::kAdd:
        return BinaryLanes<T, T, AddOp>();
      case BinaryOp::kSub:
        return BinaryLanes<T, T, SubOp>();
      case BinaryOp::kMul:
        return BinaryLanes<T, T, MulOp>();
      case BinaryOp::kDiv:
        return BinaryLanes<T, T, DivOp>();
      case BinaryOp::kRem:
        return BinaryLanes<T, T, RemOp>();
      case BinaryOp::kFloorDiv:
        return BinaryLanes<T, T, FloorDivOp>();
      case BinaryOp::kFloorMod:
        return BinaryLanes<T, T, FloorModOp>();
      case BinaryOp::kPow:
        return BinaryLanes<T, T, PowOp>();
      default:
        break;
    }
  }
  return {};
}

template <typename T, typename Op>
void FoldMany(void* acc, const void* a, int64_t n) {
  T total = *static_cast<T*>(acc);
  const T* x = static_cast<const T*>(a);
  for (int64_t i = 0; i < n; ++i) total = Op::Of(total, x[i]);
  *static_cast<T*>(acc) = total;
}

template <typename T>
FoldFn FoldOn(BinaryOp op) {
  if (op == BinaryOp::kMin) return FoldMany<T, MinOp>;
  if (op == BinaryOp::kMax) return FoldMany<T, MaxOp>;
  if constexpr (!scalar::kIsFloat<T>) {
    if (op == BinaryOp::kAnd) return FoldMany<T, AndOp>;
    if (op == BinaryOp::kOr) return FoldMany<T, OrOp>;
  }
  if constexpr (!scalar::kIsBool<T>) {
    if (op == BinaryOp::kAdd) return FoldMany<T, AddOp>;
    if (op == BinaryOp::kMul) return FoldMany<T, MulOp>;
  }
  return nullptr;
}

// ---- Storage ----

// How elements of a storage type lie in memory and in registers.
template <typename T>
struct Plain {
  using Storage = T;
  using Register = T;
  static T Decode(T value) { return value; }
  static T Encode(T value) { return value; }
};
struct BoolCodec {
  using Storage = uint8_t;
  using Register = bool;
  static bool Decode(uint8_t value) { return value != 0; }
  static uint8_t Encode(bool value) { return value ? 1 : 0; }
};
struct HalfCodec {
  using Storage = uint16_t;
  using Register = float;
  static float Decode(uint16_t value) { return HalfToFloat(value); }
  static uint16_t Encode(float value) { return FloatToHalf(value); }
};
struct Bfloat16Codec {
  using Storage = uint16_t;
  using Register = float;
  static float Decode(uint16_t value) { return Bfloat16ToFloat(value); }
  static uint16_t Encode(float value) { return FloatToBfloat16(value); }
};
template <DataType kType>
struct Float8Codec {
  using Storage = uint8_t;
  using Register = float;
  static float Decode(uint8_t value) { return Float8ToFloat(kType, value); }
  static uint8_t Encode(float value) { return FloatToFloat8(kType, value); }
};

// Memory of a tensor may be unaligned (it may lie in a mapped file).
template <typename T>
T ReadAs(const std::byte* memory, int64_t index) {
  T value;
  std::memcpy(&value, memory + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <typename T>
void WriteAs(std::byte* memory, int64_t index, T value) {
  std::memcpy(memory + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename Codec>
MemoryOps MemoryOf() {
  using S = typename Codec::Storage;
  using R = typename Codec::Register;
  MemoryOps ops;
  ops.load = [](void* d, const std::byte* memory, int64_t offset, int64_t step, int64_t n) {
    R* out = static_cast<R*>(d);
    const std::byte* from = memory + offset * static_cast<int64_t>(sizeof(S));
    if (step == 1) {
      QUENCH_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) out[i] = Codec::Decode(ReadAs<S>(from, i));
      return;
    }
    for (int64_t i = 0; i < n; ++i) out[i] = Codec::Decode(ReadAs<S>(from, i * step));
  };
  ops.store = [](std::byte* memory, const void* a, int64_t offset, int64_t step, int64_t n) {
    const R* x = static_cast<const R*>(a);
    std::byte* to = memory + offset * static_cast<int64_t>(sizeof(S));
    if (step == 1) {
      QUENCH_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) WriteAs<S>(to, i, Codec::Encode(x[i]));
      return;
    }
    for (int64_t i = 0; i < n; ++i) WriteAs<S>(to, i * step, Codec::Encode(x[i]));
  };
  ops.gather = [](void* d, const std::byte* memory, const int64_t* offsets, const bool* mask,
                  int64_t n) {
    R* out = static_cast<R*>(d);
    for (int64_t i = 0; i < n; ++i) {
      const bool active = mask == nullptr || mask[i];
      out[i] = active ? Codec::Decode(ReadAs<S>(memory, offsets[i])) : R{};
    }
  };
  ops.scatter = [](std::byte* memory, const void* a, const int64_t* offsets, const bool* mask,
                   int64_t n) {
    const R* x = static_cast<const R*>(a);
    for (int64_t i = 0; i < n; ++i) {
      if (mask == nullptr || mask[i]) WriteAs<S>(memory, offsets[i], Codec::Encode(x[i]));
    }
  };
  return ops;
}

// Rounding of a float register to a storage float.
template <typename Codec>
struct RoundOp {
  static float Of(float value) { return Codec::Decode(Codec::Encode(value)); }
};

Lanes<UnaryFn> RoundTo(DataType type) {
  switch (type) {
    case DataType::kF16:
      return UnaryLanes<float, float, RoundOp<HalfCodec>>();
    case DataType::kBF16:
      return UnaryLanes<float, float, RoundOp<Bfloat16Codec>>();
    case DataType::kF8E4M3FN:
      return UnaryLanes<float, float, RoundOp<Float8Codec<DataType::kF8E4M3FN>>>();
    case DataType::kF8E4M3FNUZ:
      return UnaryLanes<float, float, RoundOp<Float8Codec<DataType::kF8E4M3FNUZ>>>();
    case DataType::kF8E5M2:
      return UnaryLanes<float, float, RoundOp<Float8Codec<DataType::kF8E5M2>>>();
    case DataType::kF8E5M2FNUZ:
      return UnaryLanes<float, float, RoundOp<Float8Codec<DataType::kF8E5M2FNUZ>>>();
    default:
      return {};
  }
}

template <typename To>
struct ConvertOp {
  template <typename From>
  static To Of(From value) {
    return scalar::Convert<To>(value);
  }
};

}  // namespace

bool IsRunnable(DataType type) {
  switch (type) {
    case DataType::kF4E2M1:
    case DataType::kF8E8M0:
      return false;
    default:
      break;
  }
  return (IsFloat(type) || IsInteger(type) || type == DataType::kBool) && DataTypeBits(type) >= 8;
}

int RegisterBytes(DataType type) {
  return VisitRegister(type, [](auto zero) { return static_cast<int>(sizeof(zero)); });
}

Lanes<UnaryFn> FindUnary(UnaryOp op, DataType type) {
  return VisitRegister(type, [&](auto zero) { return UnaryOn<decltype(zero)>(op); });
}

Lanes<BinaryFn> FindBinary(BinaryOp op, DataType type) {
  return VisitRegister(type, [&](auto zero) { return BinaryOn<decltype(zero)>(op); });
}

Lanes<UnaryFn> FindCast(DataType from, DataType to) {
  if (const Lanes<UnaryFn> round = RoundTo(to); round.one != nullptr) return round;
  return VisitRegister(from, [&](auto a) {
    using From = decltype(a);
    return VisitRegister(to, [](auto b) {
      using To = decltype(b);
      return UnaryLanes<To, From, ConvertOp<To>>();
    });
  });
}

Lanes<SelectFn> FindSelect(DataType type) {
  return VisitRegister(type, [](auto zero) {
    using T = decltype(zero);
    return Lanes<SelectFn>{[](void* d, const void* c, const void* a, const void* b, int64_t) {
                             *static_cast<T*>(d) = *static_cast<const bool*>(c)
                                                       ? *static_cast<const T*>(a)
                                                       : *static_cast<const T*>(b);
                           },
                           [](void* d, const void* c, const void* a, const void* b, int64_t n) {
                             T* out = static_cast<T*>(d);
                             const bool* condition = static_cast<const bool*>(c);
                             const T* x = static_cast<const T*>(a);
                             const T* y = static_cast<const T*>(b);
                             // Often every lane goes the same way (padding, guards).
                             const size_t count = static_cast<size_t>(n);
                             if (std::memchr(c, 0, count) == nullptr) {
                               std::memmove(d, a, count * sizeof(T));
                               return;
                             }
                             QUENCH_INDEPENDENT
                             for (int64_t i = 0; i < n; ++i) {
                               const T left = x[i];
                               const T right = y[i];
                               out[i] = condition[i] ? left : right;
                             }
                           }};
  });
}

FoldFn FindFold(BinaryOp op, DataType type) {
  return VisitRegister(type, [&](auto zero) { return FoldOn<decltype(zero)>(op); });
}

UnaryFn FindSplat(DataType type) {
  return VisitRegister(type, [](auto zero) -> UnaryFn {
    using T = decltype(zero);
    return [](void* d, const void* a, int64_t n) {
      const T value = *static_cast<const T*>(a);
      T* out = static_cast<T*>(d);
      for (int64_t i = 0; i < n; ++i) out[i] = value;
    };
  });
}

MemoryOps FindMemory(DataType storage) {
  switch (storage) {
    case DataType::kBool:
      return MemoryOf<BoolCodec>();
    case DataType::kI8:
      return MemoryOf<Plain<int8_t>>();
    case DataType::kI16:
      return MemoryOf<Plain<int16_t>>();
    case DataType::kI32:
      return MemoryOf<Plain<int32_t>>();
    case DataType::kI64:
      return MemoryOf<Plain<int64_t>>();
    case DataType::kU8:
      return MemoryOf<Plain<uint8_t>>();
    case DataType::kU16:
      return MemoryOf<Plain<uint16_t>>();
    case DataType::kU32:
      return MemoryOf<Plain<uint32_t>>();
    case DataType::kU64:
      return MemoryOf<Plain<uint64_t>>();
    case DataType::kF32:
      return MemoryOf<Plain<float>>();
    case DataType::kF64:
      return MemoryOf<Plain<double>>();
    case DataType::kF16:
      return MemoryOf<HalfCodec>();
    case DataType::kBF16:
      return MemoryOf<Bfloat16Codec>();
    case DataType::kF8E4M3FN:
      return MemoryOf<Float8Codec<DataType::kF8E4M3FN>>();
    case DataType::kF8E4M3FNUZ:
      return MemoryOf<Float8Codec<DataType::kF8E4M3FNUZ>>();
    case DataType::kF8E5M2:
      return MemoryOf<Float8Codec<DataType::kF8E5M2>>();
    case DataType::kF8E5M2FNUZ:
      return MemoryOf<Float8Codec<DataType::kF8E5M2FNUZ>>();
    default:
      return {};
  }
}

}  // namespace quench::loops
