// f32: exp, log, tanh, erf and logistic are done in f32, the rest is done in f64 and rounded once.
#include "services/codegen/emit/math.h"
#include "services/codegen/emit/math_coefficients.h"

namespace quench::codegen {

Num Widen(Num x) { return x.With(x.b->CreateFPExt(x.v, x.Shaped(x.b->getDoubleTy()))); }
Num Narrow(Num x, Num like) { return x.With(x.b->CreateFPTrunc(x.v, like.v->getType())); }

namespace math {
namespace {

using loops::UnaryOp;

// e^x = 2^(n + f), |f| <= 1/2, for kernels of bytes, which may not fuse: no more operations than
// Exp32 takes where it may. Off by 2^-21 and |x| 2^-24 of the result; 0 below e^-86.
Num ExpOfBytes(Num x) {
  const Bits none = x < -86;
  x = Select(x > 89, x.K(89), Select(none, x.K(-86), x));
  const double magic = RoundingMagic(x);
  const Num t = x * 1.44269504088896341;
  const Num shifted = t + magic;
  const Num f = t - (shifted - magic);
  const Num power = Polynomial(coefficients::kExp2F32, f) * f + 1;
  const Bits n = shifted.AsBits() - x.K(magic).AsBits();
  return Select(none, x.K(0), power * x.FromBits((n + 126) << 23) * 2);
}

// e^x = 2^n fraction.
struct Power {
  Num fraction;
  Num shifted;  // n + RoundingMagic
};

// x = n ln 2 + r, |r| <= ln 2 / 2 (Cody and Waite: ln 2 in two parts, the first short enough that n
// times it is exact); e^x = 2^n (1 + r + r^2 P(r)). |x| is below 2^15.
Power PowerOf(Num x) {
  const double magic = RoundingMagic(x);
  const Num shifted = Fma(x, 1.44269504088896341, x.K(magic));
  const Num n = shifted - magic;
  const Num r = Fma(n, 2.12194440e-4, Fma(n, -0.693359375, x));
  return {Fma(Polynomial(coefficients::kExpF32, r), r * r, r) + 1, shifted};
}

// 2^n is applied in two steps: results overflow and denormalize as they should. A result that
// rounds to 0, as for a masked score, is not multiplied down to it: CPUs take some 90 cycles for a
// product below the normal range.
Num Exp32(Num x) {
  if (!x.state->fuses) return ExpOfBytes(x);
  const Bits none = x < -104;
  x = Select(none, x.K(0), x);
  x = Select(x > 89, x.K(89), x);
  const Power power = PowerOf(x);
  const Bits n = power.shifted.AsBits() - x.K(RoundingMagic(x)).AsBits();
  const Bits half = ShiftRightSigned(n, 1);
  const Num first = x.FromBits((half + 127) << 23);
  const Num second = x.FromBits((n - half + 127) << 23);
  return Select(none, x.K(0), power.fraction * first * second);
}

// 2^n for -127 (which gives 0) <= n <= 128 (infinity). The magic number's own bits leave at the top.
Num Scale(const Power& power) {
  return power.shifted.FromBits((power.shifted.AsBits() << 23) + 0x3f800000);
}

// e^-x for 0 <= x <= 80.
Num ExpOfMinus(Num x) {
  if (!x.state->fuses) return ExpOfBytes(-x);
  const Power power = PowerOf(-x);
  return power.fraction * Scale(power);
}

// e^-x + 1 is 1 long before e^-x leaves the normal range below. Above, it is infinite from 2^127.5 on:
// results below 4.2e-39 are 0.
Num Logistic32(Num x) {
  if (!x.state->fuses) return 1 / (ExpOfBytes(-x) + 1);
  x = Select(x > 88, x.K(88), x);
  x = Select(x < -89, x.K(-89), x);
  const Power power = PowerOf(-x);
  return 1 / Fma(power.fraction, Scale(power), x.K(1));
}

// x = 2^k m, sqrt(1/2) <= m < sqrt(2), f = m - 1; log x = k ln 2 + f - f^2 / 2 + f^3 P(f).
Num Log32(Num x) {
  const Bits tiny = x < 0x1p-126;
  const Num scaled = Select(tiny, x * 0x1p23, x);
  const Bits bits = scaled.AsBits();
  const Bits k = ShiftRightSigned(bits - 0x3f3504f3, 23);
  const Num m = x.FromBits(bits - (k << 23));
  const Num exponent =
      x.With(x.b->CreateSIToFP(k.v, x.v->getType())) - Select(tiny, x.K(23), x.K(0));
  const Num f = m - 1;
  const Num square = f * f;
  Num tail = Fma(square * f, Polynomial(coefficients::kLogF32, f), exponent * -2.12194440e-4);
  tail = Fma(square, -0.5, tail);
  const Num finite = Fma(exponent, 0.693359375, f + tail);
  const Num edge = Select(x == 0.0, -x.Infinity(), Select(x > 0, x.Infinity(), x.Nan()));
  const Bits regular = Bits{x.b, x.b->CreateAnd((x > 0).v, (x < x.Infinity()).v)};
  return Select(regular, finite, edge);
}

// |x| <= 0.63: x + x z P(z), z = x^2; else 1 - 2 / (1 + e^(2 |x|)).
Num Tanh32(Num x) {
  const Num a = Abs(x);
  const Num z = x * x;
  const Num small = Fma(Polynomial(coefficients::kTanhF32, z) * z, x, x);
  const Num large = Fma(Logistic32(-(a + a)), -2, x.K(1));
  return CopySign(Select(a < 0.6324, small, large), x);
}

// |x| <= 1: x + x P(x^2); else 1 - e^(-x^2) Q(|x| - 2.5).
Num Erf32(Num x) {
  const Num small = Fma(Polynomial(coefficients::kErfF32, x * x), x, x);
  Num a = Abs(x);
  a = Select(a > 4.2, a.K(4.2), a);
  const Num q = Polynomial(coefficients::kErfcF32, a - 2.5);
  const Num large = CopySign(1 - ExpOfMinus(a * a) * q, x);
  return Select(a < 1, small, large);
}

Num Apply32(UnaryOp op, Num x) {
  switch (op) {
    case UnaryOp::kExp:
      return Exp32(x);
    case UnaryOp::kLog:
      return Log32(x);
    case UnaryOp::kTanh:
      return Tanh32(x);
    case UnaryOp::kErf:
      return Erf32(x);
    case UnaryOp::kLogistic:
      return Logistic32(x);
    default:
      return Narrow(Apply(op, Widen(x)), x);
  }
}

Num Apply64(UnaryOp op, Num x) {
  switch (op) {
    case UnaryOp::kExp:
      return Exp64(x);
    case UnaryOp::kLog:
      return Log64(x);
    case UnaryOp::kSin:
      return SinCos64(x, false);
    case UnaryOp::kCos:
      return SinCos64(x, true);
    case UnaryOp::kTan:
      return Tan64(x);
    case UnaryOp::kAsin:
    case UnaryOp::kAcos:
    case UnaryOp::kAtan:
      return Inverse64(op, x);
    case UnaryOp::kErf:
      return Erf64(x);
    case UnaryOp::kLogistic:
      return 1 / (Exp64(-x) + 1);
    default:
      return Hyperbolic64(op, x);
  }
}

// |x| + 2^52 - 2^52 rounds to even when |x| < 2^52 (2^23 for f32); larger values are integers
// already.
Num RoundByAdding(Num x) {
  const double limit = x.is_f64() ? 0x1p52 : 0x1p23;
  const Num a = Abs(x);
  const Num rounded = (a + limit) - limit;
  return Select(a < limit, CopySign(rounded, x), x);
}

Num Intrinsic(llvm::Intrinsic::ID id, Num x) { return x.With(x.b->CreateUnaryIntrinsic(id, x.v)); }

}  // namespace

Num RoundEven(Num x) {
  if (IsNative(*x.state, NativeOp::kRoundEven, x.v->getType())) {
    return Intrinsic(llvm::Intrinsic::roundeven, x);
  }
  return RoundByAdding(x);
}

Num Floor(Num x) {
  if (IsNative(*x.state, NativeOp::kFloor, x.v->getType()))
    return Intrinsic(llvm::Intrinsic::floor, x);
  const Num r = RoundByAdding(x);
  return CopySign(Select(r > x, r - 1, r), x);
}

Num Ceil(Num x) {
  if (IsNative(*x.state, NativeOp::kCeil, x.v->getType()))
    return Intrinsic(llvm::Intrinsic::ceil, x);
  const Num r = RoundByAdding(x);
  return CopySign(Select(r < x, r + 1, r), x);
}

Num Trunc(Num x) {
  if (IsNative(*x.state, NativeOp::kTrunc, x.v->getType()))
    return Intrinsic(llvm::Intrinsic::trunc, x);
  return CopySign(Floor(Abs(x)), x);
}

Num Apply(UnaryOp op, Num x) {
  if (op == UnaryOp::kSqrt) return Sqrt(x);
  return x.is_f64() ? Apply64(op, x) : Apply32(op, x);
}

Num Pow(Num x, Num y) {
  if (x.is_f64()) return Pow64(x, y);
  return Narrow(Pow64(Widen(x), Widen(y)), x);
}

}  // namespace math
}  // namespace quench::codegen
