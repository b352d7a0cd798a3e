// Conversions between element types. f16 (where the target has no instructions for it), bf16 and f8
// are taken apart in integer arithmetic, and 64-bit integers on 32-bit targets in halves, so that no
// target needs a conversion library.
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/PatternMatch.h>

#include <cmath>
#include <limits>

#include "common/runtime/abi.h"
#include "services/codegen/emit/arith.h"
#include "services/codegen/emit/math.h"

namespace quench::codegen {
namespace {

// A value that becomes an integer: roundeven(value) + offset, or the value itself, truncated.
struct Rounded {
  llvm::Value* value;
  bool rounds = false;
  double offset = 0;
};

Rounded ReadRounded(llvm::Value* x) {
  namespace match = llvm::PatternMatch;
  const llvm::APFloat* offset = nullptr;
  llvm::Value* rounded = x;
  if (!match::match(x, match::m_FAdd(match::m_Value(rounded), match::m_APFloat(offset))))
    rounded = x;
  const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(rounded);
  if (call == nullptr || call->getIntrinsicID() != llvm::Intrinsic::roundeven) return {x};
  const double added = offset == nullptr ? 0 : offset->convertToDouble();
  if (added != std::nearbyint(added) || std::abs(added) > 0x1p16) return {x};
  return {call->getArgOperand(0), true, added};
}

// A float format of at most 16 bits; codes are without the sign bit.
struct Format {
  int bits, mantissa, bias;
  int64_t max_code;    // largest finite magnitude
  int64_t overflow;    // magnitude code of what is larger: infinity, or NaN
  int64_t nan;         // code that NaN becomes
  bool unsigned_zero;  // FNUZ: the sign bit alone is the only NaN
  bool infinity;
};

Format FormatOf(DataType type) {
  switch (type) {
    case DataType::kF16:
      return {16, 10, 15, 0x7bff, 0x7c00, 0x7e00, false, true};
    case DataType::kF8E4M3FN:
      return {8, 3, 7, 0x7e, 0x7f, 0x7f, false, false};
    case DataType::kF8E4M3FNUZ:
      return {8, 3, 8, 0x7f, 0x80, 0x80, true, false};
    case DataType::kF8E5M2:
      return {8, 2, 15, 0x7b, 0x7c, 0x7f, false, true};
    default:
      return {8, 2, 16, 0x7f, 0x80, 0x80, true, false};  // kF8E5M2FNUZ
  }
}

constexpr int64_t kInfinity32 = 0x7f800000;
constexpr int64_t kMagic32 =
    0x4b000000;  // 2^23: added to an integer below it, the sum's low bits are that integer

double Power(int exponent) { return std::ldexp(1.0, exponent); }

Num DecodeSmall(const Format& f, Bits code, Num like) {
  const int64_t sign_bit = int64_t{1} << (f.bits - 1);
  const Bits magnitude = code & (sign_bit - 1);
  const Bits sign = (code & sign_bit) << (32 - f.bits);
  const Bits rebased = (magnitude << (23 - f.mantissa)) + (int64_t{127 - f.bias} << 23);
  const Num subnormal =
      (like.FromBits(magnitude | kMagic32) - 0x1p23) * Power(1 - f.bias - f.mantissa);
  Num value = Select(Below(magnitude, int64_t{1} << f.mantissa), subnormal, like.FromBits(rebased));
  if (f.infinity) {
    value = Select(magnitude == f.overflow, value.Infinity(), value);
    value = Select(AtLeast(magnitude, f.overflow + 1), value.Nan(), value);
  } else if (!f.unsigned_zero) {
    value = Select(AtLeast(magnitude, f.max_code + 1), value.Nan(), value);
  }
  value = value.FromBits(value.AsBits() | sign);
  return f.unsigned_zero ? Select(code == sign_bit, value.Nan(), value) : value;
}

Bits EncodeSmall(const Format& f, Num x) {
  const Bits bits = x.AsBits();
  const Bits magnitude = bits & 0x7fffffff;
  const int shift = 23 - f.mantissa;
  // Round to nearest even at the last kept bit; a carry moves into the exponent, which is right.
  const Bits odd = ShiftRight(magnitude, shift) & 1;
  const Bits rounded = magnitude + odd + ((int64_t{1} << (shift - 1)) - 1);
  const Bits normal = ShiftRight(rounded, shift) - (int64_t{127 - f.bias} << f.mantissa);
  const Num scaled = Abs(x) * Power(f.bias - 1 + f.mantissa) + 0x1p23;
  const Bits subnormal = scaled.AsBits() - kMagic32;
  Bits code = Select(Below(magnitude, int64_t{128 - f.bias} << 23), subnormal, normal);
  const Bits overflow{x.b, x.b->CreateICmpSGT(code.v, code.K(f.max_code).v)};
  code = Select(overflow, code.K(f.overflow), code);
  const Bits sign = ShiftRight(bits, 32 - f.bits) & (int64_t{1} << (f.bits - 1));
  if (f.unsigned_zero) {
    code = Select(code == 0, code, code | sign);
    return Select(IsNan(x), code.K(f.nan), code);
  }
  if (f.bits == 8) return Select(IsNan(x), code.K(f.nan), code | sign);
  return Select(IsNan(x), code.K(f.nan), code) | sign;
}

// The upper half of an f32, rounded to nearest even.
Bits EncodeBfloat16(Num x) {
  const Bits bits = x.AsBits();
  const Bits odd = ShiftRight(bits, 16) & 1;
  const Bits rounded = ShiftRight(bits + odd + 0x7fff, 16);
  return Select(IsNan(x), ShiftRight(bits, 16) | 0x40, rounded);
}

// The operand of FromStorage where it widened bf16, or null.
llvm::Value* WidenedBfloats(llvm::Value* f32) {
  namespace match = llvm::PatternMatch;
  llvm::Value* narrow = nullptr;
  const bool widened =
      match::match(f32, match::m_BitCast(match::m_Shl(match::m_ZExt(match::m_Value(narrow)),
                                                      match::m_SpecificInt(16))));
  return widened && narrow->getType()->getScalarType()->isIntegerTy(16) ? narrow : nullptr;
}

}  // namespace

llvm::Value* Arith::FromStorage(DataType type, llvm::Value* bits) {
  llvm::Type* i32 = Shaped(bits, b_.getInt32Ty());
  const Bits code{&b_, b_.CreateZExt(bits, i32)};
  llvm::Type* f32 = Shaped(bits, b_.getFloatTy());
  if (type == DataType::kBF16) return b_.CreateBitCast((code << 16).v, f32);
  if (type == DataType::kF16 && state_.target.converts_halves)
    return b_.CreateFPExt(b_.CreateBitCast(bits, Shaped(bits, b_.getHalfTy())), f32);
  const Num like = AsNum(llvm::Constant::getNullValue(f32));
  return DecodeSmall(FormatOf(type), code, like).v;
}

// Whether a value is a vector of f32 of the target's registers.
bool Arith::FillsRegister(llvm::Value* x) const {
  const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  return vector != nullptr &&
         static_cast<int>(vector->getNumElements()) == state_.target.f32_lanes();
}

llvm::Value* Arith::ToStorage(DataType type, llvm::Value* f32) {
  if (type == DataType::kF16 && state_.target.converts_halves) {
    return b_.CreateBitCast(b_.CreateFPTrunc(f32, Shaped(f32, b_.getHalfTy())),
                            Shaped(f32, b_.getInt16Ty()));
  }
  if (llvm::Value* const narrow = type == DataType::kBF16 ? WidenedBfloats(f32) : nullptr)
    return narrow;
  if (type == DataType::kBF16 && !state_.target.narrow_to_bf16.empty() && FillsRegister(f32)) {
    llvm::Type* const narrow = Shaped(f32, b_.getBFloatTy());
    const llvm::FunctionCallee function = state_.module->getOrInsertFunction(
        state_.target.narrow_to_bf16,
        llvm::FunctionType::get(narrow, {f32->getType()}, /*isVarArg=*/false));
    return b_.CreateBitCast(b_.CreateCall(function, {f32}), Shaped(f32, b_.getInt16Ty()));
  }
  const Num x = AsNum(f32);
  const Bits code = type == DataType::kBF16 ? EncodeBfloat16(x) : EncodeSmall(FormatOf(type), x);
  return b_.CreateTrunc(code.v, Shaped(f32, RegisterType(b_.getContext(), type)));
}

// Saturates; NaN gives 0.
llvm::Value* Arith::FloatToInt(DataType to, llvm::Value* x) {
  const bool is_signed = IsSigned(to);
  if (DataTypeBits(to) == 64 && state_.target.pointer_bits == 32) return WideToInt(is_signed, x);
  if (DataTypeBits(to) < 32) return NarrowToInt(to, x);
  llvm::Type* type = Shaped(x, RegisterType(b_.getContext(), to));
  const llvm::Intrinsic::ID id =
      is_signed ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
  return b_.CreateIntrinsic(id, {type, x->getType()}, {x});
}

// Limits are exact in f32, and between them every conversion to i32 is defined: code that stays in
// vectors, which LLVM's saturating conversion to narrow integers does not. Vectors of x86 round as they
// convert: limits are integers, so it does not matter whether they come before.
llvm::Value* Arith::NarrowToInt(DataType to, llvm::Value* x) {
  const int bits = static_cast<int>(DataTypeBits(to));
  const double high = std::ldexp(1.0, IsSigned(to) ? bits - 1 : bits) - 1;
  const double low = IsSigned(to) ? -high - 1 : 0;
  const bool vector = x->getType()->isVectorTy();
  const bool x86 = state_.target.machine == QUENCH_MACHINE_X86_64;
  const bool single = x->getType()->getScalarType()->isFloatTy();
  const Rounded from = vector && single && x86 ? ReadRounded(x) : Rounded{x};
  const auto constant = [&](double value) {
    return llvm::ConstantFP::get(x->getType(), value - from.offset);
  };
  llvm::Value* number = from.value;
  // Where the least is 0, a NaN, which is not greater, needs no look of its own.
  if (low < 0) number = b_.CreateSelect(b_.CreateFCmpORD(number, number), number, constant(0));
  number = b_.CreateSelect(b_.CreateFCmpOGT(number, constant(low)), number, constant(low));
  number = b_.CreateSelect(b_.CreateFCmpOLT(number, constant(high)), number, constant(high));
  llvm::Type* i32 = Shaped(x, b_.getInt32Ty());
  llvm::Value* whole =
      from.rounds ? b_.CreateIntrinsic(llvm::Intrinsic::lrint, {i32, number->getType()}, {number})
                  : b_.CreateFPToSI(number, i32);
  if (from.offset != 0) whole = b_.CreateAdd(whole, Like(whole, static_cast<int64_t>(from.offset)));
  // Says that truncation saturates: so it is by instructions that do, two in place of four on AVX2.
  // (AVX-512 truncates in one that does not.)
  if (vector && state_.target.vector_bits <= 256) {
    const auto limit = [&](llvm::Intrinsic::ID id, double value) {
      whole = b_.CreateBinaryIntrinsic(id, whole, Like(whole, static_cast<int64_t>(value)));
    };
    limit(llvm::Intrinsic::smax, low);
    limit(llvm::Intrinsic::smin, high);
  }
  return b_.CreateTrunc(whole, Shaped(x, RegisterType(b_.getContext(), to)));
}

// |x| = high * 2^32 + low, each half converted to 32 bits.
llvm::Value* Arith::WideToInt(bool is_signed, llvm::Value* x) {
  const Num wide = AsNum(x).is_f64() ? AsNum(x) : Widen(AsNum(x));
  const double limit = is_signed ? 0x1p63 : 0x1p64;
  const Num a = Abs(wide);
  const Num high = math::Floor(a * 0x1p-32);
  const Num low = a - high * 0x1p32;
  llvm::Type* i32 = Shaped(x, b_.getInt32Ty());
  llvm::Type* i64 = Shaped(x, b_.getInt64Ty());
  const auto part = [&](Num value) {
    llvm::Value* word =
        b_.CreateIntrinsic(llvm::Intrinsic::fptoui_sat, {i32, value.v->getType()}, {value.v});
    return Bits{&b_, b_.CreateZExt(word, i64)};
  };
  const Bits magnitude = (part(high) << 32) | part(low);
  const Bits zero = magnitude.K(0);
  if (!is_signed) {
    const Bits value = Select(a >= limit, magnitude.K(-1), magnitude);
    return Select(wide > 0.0, value, zero).v;
  }
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const Bits positive = Select(a >= limit, magnitude.K(largest), magnitude);
  const Bits negative =
      Select(a >= limit, magnitude.K(std::numeric_limits<int64_t>::min()), zero - magnitude);
  return Select(IsNan(wide), zero, Select(wide < 0.0, negative, positive)).v;
}

llvm::Value* Arith::IntToFloat(DataType from, DataType to, llvm::Value* x) {
  const bool is_signed = IsSigned(from);
  if (DataTypeBits(from) == 64 && state_.target.pointer_bits == 32) {
    return WideFromInt(is_signed, to == DataType::kF32, x);
  }
  llvm::Type* type = Shaped(x, RegisterType(b_.getContext(), to));
  return is_signed ? b_.CreateSIToFP(x, type) : b_.CreateUIToFP(x, type);
}

// high * 2^32 + low in f64: one rounding. For f32 the low bits are first gathered into one that the
// f64 keeps, so that the second rounding sees them.
llvm::Value* Arith::WideFromInt(bool is_signed, bool to_f32, llvm::Value* x) {
  Bits value{&b_, x};
  Bits negative{&b_, b_.CreateICmpSLT(x, Like(x, 0))};
  if (is_signed) value = Select(negative, value.K(0) - value, value);
  if (to_f32) {
    const Bits sticky = Select((value & 0x7ff) == 0, value.K(0), value.K(0x800));
    value = Select(AtLeast(value, int64_t{1} << 53), (value & ~int64_t{0x7ff}) | sticky, value);
  }
  // The halves as low bits of 2^84 and 2^52, which are then subtracted. Conversions of halves would not do:
  // LLVM knows that they are one integer, and for vectors of Arm calls a function that converts it (22).
  const Num like = AsNum(llvm::Constant::getNullValue(Shaped(x, b_.getDoubleTy())));
  const Num high = like.FromBits(ShiftRight(value, 32) | 0x4530000000000000) - 0x1p84;
  const Num low = like.FromBits((value & 0xffffffff) | 0x4330000000000000) - 0x1p52;
  Num result = high + low;
  if (is_signed) result = Select(negative, -result, result);
  return to_f32 ? b_.CreateFPTrunc(result.v, Shaped(x, b_.getFloatTy())) : result.v;
}

llvm::Value* Arith::Cast(DataType from, DataType to, llvm::Value* x) {
  if (from == to) return x;
  const bool from_storage = IsFloat(from) && from != DataType::kF32 && from != DataType::kF64;
  if (from_storage) return Cast(DataType::kF32, to, FromStorage(from, x));
  const bool to_storage = IsFloat(to) && to != DataType::kF32 && to != DataType::kF64;
  if (to_storage) return ToStorage(to, Cast(from, DataType::kF32, x));
  if (to == DataType::kBool) {
    if (IsFloat(from)) return b_.CreateFCmpUNE(x, llvm::Constant::getNullValue(x->getType()));
    return b_.CreateICmpNE(x, Like(x, 0));
  }
  llvm::Type* type = Shaped(x, RegisterType(b_.getContext(), to));
  if (IsFloat(from) && IsFloat(to)) return b_.CreateFPCast(x, type);
  if (IsFloat(from)) return FloatToInt(to, x);
  if (IsFloat(to)) return IntToFloat(from, to, x);
  return IsSigned(from) ? b_.CreateSExtOrTrunc(x, type) : b_.CreateZExtOrTrunc(x, type);
}

}  // namespace quench::codegen
