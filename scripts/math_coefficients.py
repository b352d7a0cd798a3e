#!/usr/bin/env python3
"""Computes the polynomial coefficients of services/codegen/emit/math_coefficients.h.

Each row of TABLE is a function that is fitted on an interval by the Remez exchange algorithm (E. Remez, 1934) in
60-digit arithmetic, minimising the largest weighted error; the coefficients are then rounded one after the other to the
precision they are used in, for f32 refitting the rest each time. Needs mpmath.

usage: scripts/math_coefficients.py > services/codegen/emit/math_coefficients.h
"""
import struct
import sys

from mpmath import mp, mpf

mp.dps = 60


def to_f32(value):
    return mpf(struct.unpack("f", struct.pack("f", float(value)))[0])


def to_f64(value):
    return mpf(float(value))


def chebyshev_points(low, high, count):
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]


def evaluate(coefficients, powers, x):
    return sum(c * x**p for c, p in zip(coefficients, powers))


def remez(function, weight, low, high, powers):
    """Coefficients c_i of sum c_i x^powers[i] that minimise max |weight * (sum - function)|, and that maximum."""
    n = len(powers)
    points = chebyshev_points(low, high, n + 1)
    grid = chebyshev_points(low, high, 24 * n + 48)
    values = [(function(x), weight(x)) for x in grid]
    best = None
    for _ in range(12):
        matrix, right = mp.matrix(n + 1, n + 1), mp.matrix(n + 1, 1)
        for row, x in enumerate(points):
            for column, power in enumerate(powers):
                matrix[row, column] = x**power
            matrix[row, n] = (-1) ** row / weight(x)
            right[row] = function(x)
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[i] for i in range(n)]
        errors = [w * (evaluate(coefficients, powers, x) - f) for x, (f, w) in zip(grid, values)]
        worst = max(abs(e) for e in errors)
        if best is None or worst < best[1]:
            best = (coefficients, worst)
        if worst <= abs(solution[n]) * mpf("1.0005"):
            break
        points = alternation(grid, errors, n + 1) or points
    return best


def alternation(grid, errors, count):
    """The `count` consecutive alternating extremes of the error that contain its largest value."""
    extremes = []
    for x, error in zip(grid, errors):
        if extremes and (error >= 0) == (extremes[-1][1] >= 0):
            if abs(error) > abs(extremes[-1][1]):
                extremes[-1] = (x, error)
        else:
            extremes.append((x, error))
    while len(extremes) > count:
        drop = 0 if abs(extremes[0][1]) < abs(extremes[-1][1]) else -1
        extremes.pop(drop)
    return [x for x, _ in extremes] if len(extremes) == count else None


def rounded_fit(function, weight, low, high, degree, rounding):
    """Remez. For f32, rounds the lowest coefficient and refits the others until all are representable."""
    if rounding is to_f64:
        coefficients, worst = remez(function, weight, low, high, list(range(degree + 1)))
        return [rounding(c) for c in coefficients], worst
    fixed = []
    for first in range(degree + 1):
        rest = list(range(first, degree + 1))

        def remainder(x):
            return (function(x) - evaluate(fixed, range(len(fixed)), x)) / x**first

        def scaled(x):
            return weight(x) * x**first

        coefficients, _ = remez(remainder, scaled, low, high, [p - first for p in rest])
        fixed.append(rounding(coefficients[0]))
    grid = chebyshev_points(low, high, 2000)
    worst = max(abs(weight(x) * (evaluate(fixed, range(degree + 1), x) - function(x))) for x in grid)
    return fixed, worst


def exp_tail(r):
    return mp.fsum(r**k / mp.factorial(k + 2) for k in range(40))


def log_tail(f):  # (log(1 + f) - f + f^2 / 2) / f^3
    return mp.fsum((-1) ** k * f**k / (k + 3) for k in range(400)) if abs(f) < mpf("0.05") else (
        mp.log(1 + f) - f + f * f / 2) / f**3


def log_ratio(f):
    return f * f * f / mp.log(1 + f)


def atanh_tail(z, skip):  # sum 2 z^k / (2 k + 1) from k = skip
    return mp.fsum(2 * z ** (k - skip) / (2 * k + 1) for k in range(skip, skip + 80))


def sin_tail(z):
    return mp.fsum((-1) ** (k + 1) * z**k / mp.factorial(2 * k + 3) for k in range(30))


def cos_tail(z):
    return mp.fsum((-1) ** k * z**k / mp.factorial(2 * k + 4) for k in range(30))


def root(z):
    return mp.sqrt(z)


def atan_tail(z):
    return (mp.atan(root(z)) / root(z) - 1) / z


def asin_tail(z):
    return (mp.asin(root(z)) / root(z) - 1) / z


def tanh_tail(z):
    return (mp.tanh(root(z)) / root(z) - 1) / z


def erf_head(z):
    return mp.erf(root(z)) / root(z) - 1


def erfcx(x):
    return mp.exp(x * x) * mp.erfc(x)


def erfcx_of(centre):
    return lambda t: erfcx(centre * (1 + t) / (1 - t))


def erfc_weight(t):
    x = ERF_CENTRE * (1 + t) / (1 - t)
    return mp.exp(-x * x)


def one(_):
    return mpf(1)


SKEW = mpf("1.0003")  # keeps Chebyshev points off 0, where the weight vanishes
HALF_LN2 = mp.log(2) / 2 * mpf("1.0001")
SQRT_HALF, SQRT_TWO = mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(mpf(2)) - 1
Z_LOG = (SQRT_TWO / (2 + SQRT_TWO)) ** 2 * mpf("1.0001")
Z_TRIG = (mp.pi / 4) ** 2 * mpf("1.0001")
Z_ATAN = mp.tan(mp.pi / 8) ** 2 * mpf("1.0001")
TINY = mpf(10) ** -12
ERF_CENTRE = mpf(2)


def t_of(x):
    return (x - ERF_CENTRE) / (x + ERF_CENTRE)


# name, rounding, what it is, function, weight (times the error = relative error of the result), low, high, degree
TABLE = [
    ("kExpF32", to_f32, "(e^r - 1 - r) / r^2, |r| <= ln 2 / 2", exp_tail, lambda r: r * r / mp.exp(r), -HALF_LN2 * SKEW, HALF_LN2, 4),
    ("kExp2F32", to_f32, "(2^f - 1) / f, |f| <= 1/2", lambda f: mp.expm1(f * mp.log(2)) / f, lambda f: f / mp.power(2, f),
     mpf("-0.5001") * SKEW, mpf("0.5001"), 4),
    ("kLogF32", to_f32, "(log(1 + f) - f + f^2 / 2) / f^3, sqrt(1/2) <= 1 + f <= sqrt(2)", log_tail, log_ratio, SQRT_HALF,
     SQRT_TWO, 8),
    ("kTanhF32", to_f32, "(tanh(x) / x - 1) / z, z = x^2 <= 0.4", tanh_tail, lambda z: z * root(z) / mp.tanh(root(z)), TINY,
     mpf("0.4"), 4),
    ("kErfF32", to_f32, "erf(x) / x - 1, z = x^2 <= 1", erf_head, lambda z: root(z) / mp.erf(root(z)), TINY, mpf(1), 7),
    ("kErfcF32", to_f32, "erfc(x) e^(x^2) of t = x - 2.5, 1 <= x <= 4.2", lambda t: erfcx(t + mpf("2.5")),
     lambda t: mp.exp(-(t + mpf("2.5")) ** 2), mpf("-1.5"), mpf("1.7"), 7),
    ("kExpF64", to_f64, "(e^r - 1 - r) / r^2, |r| <= ln 2 / 2", exp_tail, lambda r: r * r / mp.exp(r), -HALF_LN2 * SKEW, HALF_LN2,
     10),
    ("kLogF64", to_f64, "(2 atanh(s) / s - 2) / z, z = s^2", lambda z: atanh_tail(z, 1), one, mpf(0), Z_LOG, 6),
    ("kLogPowF64", to_f64, "(2 atanh(s) / s - 2 - 2 z / 3) / z^2, z = s^2", lambda z: atanh_tail(z, 2), one, mpf(0), Z_LOG, 7),
    ("kSinF64", to_f64, "(sin(x) / x - 1) / z, z = x^2 <= (pi / 4)^2", sin_tail, lambda z: z, TINY, Z_TRIG, 6),
    ("kCosF64", to_f64, "(cos(x) - 1 + z / 2) / z^2, z = x^2 <= (pi / 4)^2", cos_tail, lambda z: z * z, TINY, Z_TRIG, 6),
    ("kAtanF64", to_f64, "(atan(x) / x - 1) / z, z = x^2 <= tan(pi / 8)^2", atan_tail, lambda z: z, TINY, Z_ATAN, 11),
    ("kAsinF64", to_f64, "(asin(x) / x - 1) / z, z = x^2 <= 1/4", asin_tail, lambda z: z, TINY, mpf("0.2501"), 12),
    ("kErfF64", to_f64, "erf(x) / x - 1, z = x^2 <= 1", erf_head, lambda z: root(z) / mp.erf(root(z)), TINY, mpf(1), 12),
    ("kErfcF64", to_f64, "erfc(x) e^(x^2) of t = (x - 2) / (x + 2), 1 <= x <= 6", erfcx_of(ERF_CENTRE), erfc_weight, t_of(mpf(1)),
     t_of(mpf(6)), 14),
]


def main():
    print("// Generated by scripts/math_coefficients.py: minimax polynomials, lowest power first. Do not edit.")
    print("#pragma once\n\nnamespace quench::codegen::coefficients {\n")
    for name, rounding, text, function, weight, low, high, degree in TABLE:
        fixed, worst = rounded_fit(function, weight, low, high, degree, rounding)
        bits = float(-mp.log(worst, 2))
        print(f"// {text}; error 2^-{bits:.1f}")
        print(f"inline constexpr double {name}[] = {{")
        for value in fixed:
            print(f"    {float(value)!r},")
        print("};\n", flush=True)
        print(f"{name}: 2^-{bits:.1f}", file=sys.stderr)
    print("}  // namespace quench::codegen::coefficients")


if __name__ == "__main__":
    main()
