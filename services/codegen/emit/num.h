// Floating-point values under construction, scalar or vector, with operators: the maths functions
// read like their formulas. A Num is only valid while its builder lives.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <cstdint>
#include <span>

#include "services/codegen/emit/module_state.h"
#include "services/codegen/emit/native.h"

namespace quench::codegen {

struct Num;

// Integers (or i1 conditions) of the same shape.
struct Bits {
  llvm::IRBuilder<>* b = nullptr;
  llvm::Value* v = nullptr;

  Bits K(int64_t value) const {
    return {b, llvm::ConstantInt::get(v->getType(), static_cast<uint64_t>(value), true)};
  }
};

inline Bits operator+(Bits x, Bits y) { return {x.b, x.b->CreateAdd(x.v, y.v)}; }
inline Bits operator-(Bits x, Bits y) { return {x.b, x.b->CreateSub(x.v, y.v)}; }
inline Bits operator&(Bits x, Bits y) { return {x.b, x.b->CreateAnd(x.v, y.v)}; }
inline Bits operator|(Bits x, Bits y) { return {x.b, x.b->CreateOr(x.v, y.v)}; }
inline Bits operator^(Bits x, Bits y) { return {x.b, x.b->CreateXor(x.v, y.v)}; }
inline Bits operator+(Bits x, int64_t y) { return x + x.K(y); }
inline Bits operator-(Bits x, int64_t y) { return x - x.K(y); }
inline Bits operator&(Bits x, int64_t y) { return x & x.K(y); }
inline Bits operator|(Bits x, int64_t y) { return x | x.K(y); }
inline Bits operator^(Bits x, int64_t y) { return x ^ x.K(y); }
inline Bits operator<<(Bits x, int n) { return {x.b, x.b->CreateShl(x.v, x.K(n).v)}; }
inline Bits ShiftRight(Bits x, int n) { return {x.b, x.b->CreateLShr(x.v, x.K(n).v)}; }
inline Bits ShiftRightSigned(Bits x, int n) { return {x.b, x.b->CreateAShr(x.v, x.K(n).v)}; }
inline Bits operator==(Bits x, int64_t y) { return {x.b, x.b->CreateICmpEQ(x.v, x.K(y).v)}; }
inline Bits operator!=(Bits x, int64_t y) { return {x.b, x.b->CreateICmpNE(x.v, x.K(y).v)}; }
inline Bits Below(Bits x, int64_t y) { return {x.b, x.b->CreateICmpULT(x.v, x.K(y).v)}; }
inline Bits AtLeast(Bits x, int64_t y) { return {x.b, x.b->CreateICmpUGE(x.v, x.K(y).v)}; }
inline Bits Not(Bits x) { return {x.b, x.b->CreateNot(x.v)}; }
inline Bits Select(Bits c, Bits x, Bits y) { return {c.b, c.b->CreateSelect(c.v, x.v, y.v)}; }

struct Num {
  ModuleState* state = nullptr;
  llvm::IRBuilder<>* b = nullptr;
  llvm::Value* v = nullptr;

  Num With(llvm::Value* value) const { return {state, b, value}; }
  Num K(double value) const { return With(llvm::ConstantFP::get(v->getType(), value)); }
  Num Infinity() const { return With(llvm::ConstantFP::getInfinity(v->getType())); }
  Num Nan() const { return With(llvm::ConstantFP::getNaN(v->getType())); }
  bool is_f64() const {
    return v->getType()->isFPOrFPVectorTy() && v->getType()->getScalarType()->isDoubleTy();
  }
  llvm::Type* Shaped(llvm::Type* element) const {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
    if (vector == nullptr) return element;
    return llvm::FixedVectorType::get(element, vector->getNumElements());
  }
  Bits AsBits() const {
    llvm::Type* type = is_f64() ? b->getInt64Ty() : b->getInt32Ty();
    return {b, b->CreateBitCast(v, Shaped(type))};
  }
  Num FromBits(Bits bits) const { return With(b->CreateBitCast(bits.v, v->getType())); }
};

inline Num operator+(Num x, Num y) { return x.With(x.b->CreateFAdd(x.v, y.v)); }
inline Num operator-(Num x, Num y) { return x.With(x.b->CreateFSub(x.v, y.v)); }
inline Num operator*(Num x, Num y) { return x.With(x.b->CreateFMul(x.v, y.v)); }
inline Num operator/(Num x, Num y) { return x.With(x.b->CreateFDiv(x.v, y.v)); }
inline Num operator-(Num x) { return x.With(x.b->CreateFNeg(x.v)); }
inline Num operator+(Num x, double y) { return x + x.K(y); }
inline Num operator-(Num x, double y) { return x - x.K(y); }
inline Num operator*(Num x, double y) { return x * x.K(y); }
inline Num operator+(double x, Num y) { return y.K(x) + y; }
inline Num operator-(double x, Num y) { return y.K(x) - y; }
inline Num operator*(double x, Num y) { return y.K(x) * y; }
inline Num operator/(double x, Num y) { return y.K(x) / y; }
// Ordered comparisons: false with NaN.
inline Bits operator<(Num x, double y) { return {x.b, x.b->CreateFCmpOLT(x.v, x.K(y).v)}; }
inline Bits operator<=(Num x, double y) { return {x.b, x.b->CreateFCmpOLE(x.v, x.K(y).v)}; }
inline Bits operator>(Num x, double y) { return {x.b, x.b->CreateFCmpOGT(x.v, x.K(y).v)}; }
inline Bits operator>=(Num x, double y) { return {x.b, x.b->CreateFCmpOGE(x.v, x.K(y).v)}; }
inline Bits operator==(Num x, double y) { return {x.b, x.b->CreateFCmpOEQ(x.v, x.K(y).v)}; }
inline Bits operator<(Num x, Num y) { return {x.b, x.b->CreateFCmpOLT(x.v, y.v)}; }
inline Bits operator>(Num x, Num y) { return {x.b, x.b->CreateFCmpOGT(x.v, y.v)}; }
inline Bits operator==(Num x, Num y) { return {x.b, x.b->CreateFCmpOEQ(x.v, y.v)}; }
inline Bits IsNan(Num x) { return {x.b, x.b->CreateFCmpUNO(x.v, x.v)}; }
inline Bits IsInfinite(Num x) {
  return {x.b, x.b->CreateFCmpOEQ(x.b->CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x.v),
                                  x.Infinity().v)};
}
inline Num Select(Bits c, Num x, Num y) { return x.With(c.b->CreateSelect(c.v, x.v, y.v)); }
inline Num Abs(Num x) { return x.With(x.b->CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x.v)); }
inline Num CopySign(Num x, Num sign) {
  return x.With(x.b->CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x.v, sign.v));
}
inline Num Sqrt(Num x) { return x.With(x.b->CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x.v)); }
// a * b + c, fused where that is an instruction and allowed, else with two roundings.
inline bool HasFma(Num x) {
  return x.state->fuses && IsNative(*x.state, NativeOp::kFma, x.v->getType());
}
inline Num Fma(Num a, Num b, Num c) {
  if (!HasFma(a)) return a * b + c;
  return a.With(a.b->CreateIntrinsic(llvm::Intrinsic::fma, {a.v->getType()}, {a.v, b.v, c.v}));
}
inline Num Fma(Num a, double b, Num c) { return Fma(a, a.K(b), c); }
// Nearest integer, halves to even; |x| small enough that the sum keeps its unit digit (2^22 or
// 2^51).
inline double RoundingMagic(Num x) { return x.is_f64() ? 0x1.8p52 : 0x1.8p23; }
// c[0] + c[1] x + ...: Horner's rule.
inline Num Polynomial(std::span<const double> c, Num x) {
  Num sum = x.K(c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = Fma(sum, x, x.K(c[i]));
  return sum;
}
Num Widen(Num x);             // f32 to f64
Num Narrow(Num x, Num like);  // f64 to the type of `like`

}  // namespace quench::codegen
