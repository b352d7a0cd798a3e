#include "common/ops/fourier.h"

#include <numbers>

namespace quench::ops {

Twiddles::Twiddles(LowerContext& ctx, E size, DataType type) : b_(ctx.b()), size_(size) {
  cosine_ = b_.Scratch("cosine", type, {size}, loops::ScratchScope::kFunction);
  sine_ = b_.Scratch("sine", type, {size}, loops::ScratchScope::kFunction);
  b_.ParallelFor(size, [&](E i) {
    const E angle = b_.Let(
        Cast(i, DataType::kF64) * (2 * std::numbers::pi) / Cast(size, DataType::kF64), "angle");
    b_.Store(cosine_, {i}, Cast(Unary(UnaryOp::kCos, angle), type));
    b_.Store(sine_, {i}, Cast(Unary(UnaryOp::kSin, angle), type));
  });
}

E Twiddles::Place(E k, E n) const { return (k * n) % size_; }

Complex FourierSum(Builder& b, const Twiddles& twiddles, E k, E count, bool inverse, DataType type,
                   const std::function<Complex(E)>& signal) {
  const E zero = b.F(0, type);
  const E re = b.Reduce(BinaryOp::kAdd, zero, count, [&](E n) {
    const Complex x = signal(n);
    const E place = twiddles.Place(k, n);
    const E term = x.re * twiddles.Cos(place);
    if (!x.im.valid()) return term;
    const E cross = x.im * twiddles.Sin(place);
    return inverse ? term - cross : term + cross;
  });
  const E im = b.Reduce(BinaryOp::kAdd, zero, count, [&](E n) {
    const Complex x = signal(n);
    const E place = twiddles.Place(k, n);
    const E cross = x.re * twiddles.Sin(place);
    const E turned = inverse ? cross : -cross;
    return x.im.valid() ? turned + x.im * twiddles.Cos(place) : turned;
  });
  return {re, im};
}

}  // namespace quench::ops
