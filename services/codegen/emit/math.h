// The maths functions of loops IR as inline code for scalars and vectors of f32 and f64, without
// calls. Errors, in units in the last place, are bounded by
// tests/unit/services/codegen/emit/math_test.cc.
#pragma once

#include "common/loops/loops.h"
#include "services/codegen/emit/num.h"

namespace quench::codegen::math {

// Rounding to integers, exact for every value.
Num RoundEven(Num x);
Num Floor(Num x);
Num Ceil(Num x);
Num Trunc(Num x);

// exp .. erf, sqrt.
Num Apply(loops::UnaryOp op, Num x);
// C99's pow, special cases included.
Num Pow(Num x, Num y);
// C's fmod: exact, the sign of `x`.
Num Fmod(Num x, Num y);

// f64 pieces that the f32 functions also use.
Num Exp64(Num x);
Num Log64(Num x);
Num SinCos64(Num x, bool cosine);
Num Tan64(Num x);
Num Inverse64(loops::UnaryOp op, Num x);     // asin acos atan
Num Hyperbolic64(loops::UnaryOp op, Num x);  // sinh cosh tanh asinh acosh atanh
Num Erf64(Num x);
Num Pow64(Num x, Num y);

}  // namespace quench::codegen::math
