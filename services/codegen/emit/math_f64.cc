// f64 maths functions. The argument reductions are the classical ones (W. J. Cody and W. Waite,
// "Software Manual for the Elementary Functions", 1980); coefficients:
// scripts/math_coefficients.py.
#include "services/codegen/emit/math.h"
#include "services/codegen/emit/math_coefficients.h"

namespace quench::codegen::math {
namespace {

using loops::UnaryOp;

constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits: its product with an exponent is exact
constexpr double kLn2Low = 1.90821492927058770002e-10;  // ln 2 - kLn2High
constexpr double kPi = 3.14159265358979311600;
constexpr double kPiLow = 1.22464679914735317720e-16;  // pi - kPi

// A value as an unevaluated sum.
struct Double {
  Num high, low;
};

// Exact sum when |a| >= |b| or a = 0 (T. J. Dekker, 1971).
Double FastTwoSum(Num a, Num b) {
  const Num sum = a + b;
  return {sum, b - (sum - a)};
}

// The rounding error of a * b: one fma, or Dekker's splitting into halves.
Num ProductError(Num a, Num b, Num product) {
  if (HasFma(a)) return Fma(a, b, -product);
  const auto high = [](Num x) {
    const Num t = x * 134217729.0;
    return t - (t - x);
  };
  const Num ah = high(a), bh = high(b);
  const Num al = a - ah, bl = b - bh;
  return al * bl - (((product - ah * bh) - al * bh) - ah * bl);
}

Double TwoProduct(Num a, Num b) {
  const Num product = a * b;
  return {product, ProductError(a, b, product)};
}

// 2^k as two factors, each a normal number for |k| <= 2044.
Num Scale(Num x, Bits k) {
  const Bits half = ShiftRightSigned(k, 1);
  return x * x.FromBits((half + 1023) << 52) * x.FromBits((k - half + 1023) << 52);
}

struct Reduced {
  Num r;   // remainder
  Bits k;  // multiple of ln 2 or pi / 2
};

// x = k ln 2 + r; |x| < 2000 or NaN.
Reduced ReduceExp(Num x) {
  const double magic = RoundingMagic(x);
  const Num shifted = Fma(x, 1.44269504088896340736, x.K(magic));
  const Num n = shifted - magic;
  const Num r = Fma(n, -kLn2Low, Fma(n, -kLn2High, x));
  return {r, shifted.AsBits() - x.K(magic).AsBits()};
}

// e^(high + low) for |low| tiny beside high.
Num ExpOfSum(Num high, Num low) {
  const Num x = Select(high > 710, high.K(710), Select(high < -746, high.K(-746), high));
  const Reduced part = ReduceExp(x);
  const Num r = part.r + low;
  const Num sum = Fma(Polynomial(coefficients::kExpF64, r), r * r, r) + 1;
  return Scale(sum, part.k);
}

// e^x - 1 for |x| <= 45.
Num Expm1(Num x) {
  const Reduced part = ReduceExp(x);
  const Num p = Fma(Polynomial(coefficients::kExpF64, part.r), part.r * part.r, part.r);
  const Num power = x.FromBits((part.k + 1023) << 52);
  return Fma(power, p, power - 1);
}

struct Split {
  Num m;  // sqrt(1/2) <= m < sqrt(2)
  Num k;  // exponent
};

// x = 2^k m for finite x > 0.
Split SplitExponent(Num x) {
  const Bits tiny = x < 0x1p-1022;
  const Num scaled = Select(tiny, x * 0x1p54, x);
  const Bits bits = scaled.AsBits();
  const Bits k = ShiftRightSigned(bits - 0x3fe6a09e667f3bcd, 52);
  const Num m = x.FromBits(bits - (k << 52));
  // A small integer becomes a double without a 64-bit conversion, which not every target has.
  const double magic = RoundingMagic(x);
  const Num exponent = x.FromBits(x.K(magic).AsBits() + k) - magic;
  return {m, exponent - Select(tiny, x.K(54), x.K(0))};
}

Num LogEdges(Num x, Num finite) {
  const Num edge = Select(x == 0.0, -x.Infinity(), Select(x > 0, x.Infinity(), x.Nan()));
  const Bits regular{x.b, x.b->CreateAnd((x > 0).v, (x < x.Infinity()).v)};
  return Select(regular, finite, edge);
}

// log(1 + x) for x >= 0 or NaN: the rounding of 1 + x is put back.
Num Log1p(Num x) {
  const Num u = x + 1;
  const Num correction = (x - (u - 1)) / u;
  return Log64(u) + Select(u == u.Infinity(), u.K(0), correction);
}

Num Sinh(Num x) {
  const Num a = Abs(x);
  const Num t = Expm1(Select(a > 22, a.K(22), a));
  const Num small = (t + t / (t + 1)) * 0.5;
  const Num half = Exp64(a * 0.5);
  return CopySign(Select(a < 22, small, half * 0.5 * half), x);
}

Num Cosh(Num x) {
  const Num a = Abs(x);
  const Num half = Exp64(a * 0.5);
  const Num small = Exp64(a);
  return Select(a < 22, small * 0.5 + 0.5 / small, half * 0.5 * half);
}

Num Tanh(Num x) {
  Num a = Abs(x);
  a = Select(a > 22, a.K(22), a);
  const Num t = Expm1(a + a);
  return CopySign(t / (t + 2), x);
}

Num Asinh(Num x) {
  const Num a = Abs(x);
  const Num square = a * a;
  const Num small = Log1p(a + square / (1 + Sqrt(square + 1)));
  const Num large = Log64(a) + 0.693147180559945309417;
  return CopySign(Select(a > 0x1p28, large, small), x);
}

Num Acosh(Num x) {
  const Num t = x - 1;
  const Num small = Log1p(t + Sqrt(t + t + t * t));
  const Num large = Log64(x) + 0.693147180559945309417;
  return Select(x > 0x1p28, large, small);
}

Num Atanh(Num x) {
  const Num a = Abs(x);
  return CopySign(Log1p((a + a) / (1 - a)) * 0.5, x);
}

// x > tan(3 pi / 8): pi / 2 - atan(1 / x); x > tan(pi / 8): pi / 4 + atan((x - 1) / (x + 1)).
Num Atan(Num x) {
  const Num a = Abs(x);
  const Bits high = a > 2.41421356237309504880;
  const Bits middle = a > 0.41421356237309504880;
  const Num t = Select(high, -1 / a, Select(middle, (a - 1) / (a + 1), a));
  const Num base = Select(high, x.K(kPi / 2), Select(middle, x.K(kPi / 4), x.K(0)));
  const Num base_low = Select(high, x.K(kPiLow / 2), Select(middle, x.K(kPiLow / 4), x.K(0)));
  const Num z = t * t;
  const Num tail = Fma(Polynomial(coefficients::kAtanF64, z) * z, t, base_low);
  return CopySign(base + (tail + t), x);
}

// |x| > 1/2: asin(x) = pi / 2 - 2 asin(sqrt((1 - |x|) / 2)).
Num AsinAcos(Num x, bool cosine) {
  const Num a = Abs(x);
  const Bits big = a > 0.5;
  const Num z = Select(big, (1 - a) * 0.5, a * a);
  const Num s = Select(big, Sqrt(z), a);
  const Num tail = Polynomial(coefficients::kAsinF64, z) * z * s;
  const Num angle = s + tail;
  if (!cosine) {
    const Num large = kPi / 2 - (angle * 2 - kPiLow / 2);
    return CopySign(Select(big, large, angle), x);
  }
  const Bits negative = x < 0.0;
  const Num large = Select(negative, kPi - (angle * 2 - kPiLow), angle * 2);
  const Num signed_s = CopySign(s, x), signed_tail = CopySign(tail, x);
  const Num small = kPi / 2 - (signed_s - (kPiLow / 2 - signed_tail));
  return Select(big, large, small);
}

// The sine of the reduced argument, or its cosine.
Num SinOf(Num r) {
  const Num z = r * r;
  return CopySign(Fma(Polynomial(coefficients::kSinF64, z) * z, r, r), r);  // -0 too
}
Num CosOf(Num r) {
  const Num z = r * r;
  const Num half = z * 0.5;
  const Num w = 1 - half;
  return w + ((1 - w - half) + z * z * Polynomial(coefficients::kCosF64, z));
}

// x = k pi / 2 + r. pi / 2 in four parts of 33 bits, so that products with |k| < 2^20 are exact:
// good to |x| = 1.6e6, gradually worse beyond; the result always lies in [-1, 1] or is NaN for
// infinities.
Reduced ReduceTrig(Num x) {
  const double magic = RoundingMagic(x);
  const Num shifted = Fma(x, 0.636619772367581343076, x.K(magic));
  const Num n = shifted - magic;
  Num r = x - n * 1.57079632673412561417e+00;
  r = r - n * 6.07710050630396597660e-11;
  r = r - n * 2.02226624871116645580e-21;
  r = r - n * 8.47842766036889956997e-32;
  const Bits far = Abs(r) > 0.8;  // |x| beyond 2^51: k has no unit digit left
  r = Select(far, r * 0, r);
  return {r, shifted.AsBits() - x.K(magic).AsBits()};
}

Num FlipSign(Num x, Bits odd) { return x.FromBits(x.AsBits() ^ ((odd & 1) << 63)); }

// log x as a sum with about 100 significant bits: the series of 2 atanh(s), s = f / (2 + f), whose
// first two terms are carried in double-double. Finite x > 0.
Double LogOfPow(Num x) {
  const Split part = SplitExponent(x);
  const Num f = part.m - 1;
  const Num u = part.m + 1;
  const Num u_low = part.m - (u - 1);
  const Num s = f / u;
  const Double su = TwoProduct(s, u);
  const Num s_low = (((f - su.high) - su.low) - s * u_low) / u;
  const Double z = TwoProduct(s, s);
  const Num z_low = Fma(s + s, s_low, z.low);
  const Double t = TwoProduct(s, z.high);  // s^3
  const Num t_low = t.low + (s * z_low + s_low * z.high);
  const Double w = TwoProduct(t.high, x.K(0.66666666666666662966));
  const Num w_low = w.low + (t.high * 3.70074341541718826e-17 + t_low * 0.66666666666666662966);
  const Num tail = t.high * z.high * Polynomial(coefficients::kLogPowF64, z.high);
  const Double a = FastTwoSum(part.k * kLn2High, s + s);
  const Double c = FastTwoSum(a.high, w.high);
  const Num low = a.low + c.low + (s_low + s_low + (w_low + (tail + part.k * kLn2Low)));
  return FastTwoSum(c.high, low);
}

struct Parity {
  Bits integer, odd;
};
Parity ParityOf(Num y) {
  const Num half = y * 0.5;
  const Bits integer = Floor(y) == y;
  const Bits odd{y.b, y.b->CreateAnd(integer.v, Not(Floor(half) == half).v)};
  return {integer, odd};
}

// |x|^y, without the rules for signs.
Num PowMagnitude(Num a, Num y) {
  const Num base = Select(Bits{a.b, a.b->CreateAnd((a > 0).v, (a < a.Infinity()).v)}, a, a.K(2));
  const Double log = LogOfPow(base);
  const Double product = TwoProduct(y, log.high);
  Num low = product.low + y * log.low;
  low = Select(Abs(low) < 1, low, low.K(0));  // not where the product overflowed
  const Num finite = ExpOfSum(product.high, low);
  // a = 0 or infinity: zero when the signs of log a and y differ, else infinity.
  const Bits shrinks{a.b, a.b->CreateXor((a > 1).v, (y > 0.0).v)};
  const Num edge = Select(shrinks, a.K(0), a.Infinity());
  const Bits at_edge{a.b, a.b->CreateOr((a == 0.0).v, (a == a.Infinity()).v)};
  return Select(at_edge, edge, finite);
}

}  // namespace

Num Exp64(Num x) { return ExpOfSum(x, x.K(0)); }

// log(1 + f) = 2 atanh(s), s = f / (2 + f), written as f - (f^2 / 2 - s (f^2 / 2 + z P(z))), which
// keeps f exact.
Num Log64(Num x) {
  const Split part = SplitExponent(x);
  const Num f = part.m - 1;
  const Num s = f / (f + 2);
  const Num z = s * s;
  const Num series = z * Polynomial(coefficients::kLogF64, z);
  const Num half = f * f * 0.5;
  const Num low = Fma(s, half + series, part.k * kLn2Low);
  return LogEdges(x, part.k * kLn2High - ((half - low) - f));
}

Num SinCos64(Num x, bool cosine) {
  const Reduced part = ReduceTrig(x);
  const Bits quadrant = cosine ? part.k + 1 : part.k;
  const Bits swap = (quadrant & 1) != 0;
  return FlipSign(Select(swap, CosOf(part.r), SinOf(part.r)), ShiftRight(quadrant, 1));
}

Num Tan64(Num x) {
  const Reduced part = ReduceTrig(x);
  const Num sine = SinOf(part.r), cosine = CosOf(part.r);
  const Bits swap = (part.k & 1) != 0;
  return Select(swap, -cosine, sine) / Select(swap, sine, cosine);
}

Num Inverse64(UnaryOp op, Num x) {
  if (op == UnaryOp::kAtan) return Atan(x);
  return AsinAcos(x, op == UnaryOp::kAcos);
}

Num Hyperbolic64(UnaryOp op, Num x) {
  switch (op) {
    case UnaryOp::kSinh:
      return Sinh(x);
    case UnaryOp::kCosh:
      return Cosh(x);
    case UnaryOp::kTanh:
      return Tanh(x);
    case UnaryOp::kAsinh:
      return Asinh(x);
    case UnaryOp::kAcosh:
      return Acosh(x);
    default:
      return Atanh(x);
  }
}

Num Erf64(Num x) {
  const Num small = Fma(Polynomial(coefficients::kErfF64, x * x), x, x);
  Num a = Abs(x);
  a = Select(a > 6, a.K(6), a);
  const Num q = Polynomial(coefficients::kErfcF64, (a - 2) / (a + 2));
  const Num large = CopySign(1 - Exp64(-(a * a)) * q, x);
  return Select(a < 1, small, large);
}

Num Pow64(Num x, Num y) {
  const Num a = Abs(x);
  const Parity parity = ParityOf(y);
  const Num magnitude = PowMagnitude(a, y);
  Num result = Select(parity.odd, CopySign(magnitude, x), magnitude);
  llvm::IRBuilder<>& b = *x.b;
  const Bits root_of_negative{
      &b, b.CreateAnd(b.CreateAnd((x < 0.0).v, (a < a.Infinity()).v), Not(parity.integer).v)};
  result = Select(root_of_negative, x.Nan(), result);
  // (+-1)^(+-inf) = 1 and NaN otherwise, except 1^y and x^0.
  const Bits unit_to_infinity{&b, b.CreateAnd((a == 1.0).v, IsInfinite(y).v)};
  result = Select(unit_to_infinity, x.K(1), result);
  const Bits any_nan{&b, b.CreateFCmpUNO(x.v, y.v)};
  result = Select(any_nan, x.Nan(), result);
  const Bits one{&b, b.CreateOr((x == 1.0).v, (y == 0.0).v)};
  return Select(one, x.K(1), result);
}

}  // namespace quench::codegen::math
