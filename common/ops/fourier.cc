#include "common/ops/fourier.h"

#include <numbers>

namespace quench::ops {

Twiddles::Twiddles(LowerContext& ctx, E size, DataType type) : b_(ctx.b()), size_(size) {
  cosine_ = b_.Scratch("cosine", type, {size}, loops::ScratchScope::kFunction);
  sine_ = b_.Scratch("sine", type, {size}, loops::ScratchScope::kFunction);
  b_.ParallelFor(size, [&](E i) {
    const E angle = b_.Let(
        Cast(i, DataType::kF64) * (2 * std::numbers::pi) / Cast(size, DataType::kF64), "angle");
    // Exact at quarter turns, where rounded angles leave what is not 0: a phase of pi would turn around.
    const E zero = b_.F(0, DataType::kF64);
    const E quarters = b_.Let(i * b_.I(4), "quarters");
    const E upright = quarters == size || quarters == size * b_.I(3);
    const E level = i == b_.I(0) || quarters == size * b_.I(2);
    const E cosine = Select(upright, zero, Unary(UnaryOp::kCos, angle));
    const E sine = Select(level, zero, Unary(UnaryOp::kSin, angle));
    b_.Store(cosine_, {i}, Cast(cosine, type));
    b_.Store(sine_, {i}, Cast(sine, type));
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
