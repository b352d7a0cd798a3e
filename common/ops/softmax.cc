#include "common/ops/softmax_common.h"

namespace quench::ops {
namespace {

// exp(x - max) / sum: the maximum keeps the exponentials in range; each is computed once.
absl::Status LowerSoftmax(LowerContext& ctx) {
  ForEachVector(ctx, /*scratch=*/true, [](const AxisVector& v) {
    Builder& b = v.b;
    const E largest =
        b.Let(b.Reduce(BinaryOp::kMax, LowestOf(b, v.type), v.size, v.load), "largest");
    b.ParallelFor(v.size,
                  [&](E k) { b.Store(v.scratch, {k}, Unary(UnaryOp::kExp, v.load(k) - largest)); });
    const E sum =
        b.Reduce(BinaryOp::kAdd, b.F(0, v.type), v.size, [&](E k) { return v.scratch.At({k}); });
    const E scale = b.Let(b.F(1, v.type) / sum, "scale");
    b.ParallelFor(v.size, [&](E k) { v.store(k, v.scratch.At({k}) * scale); });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& SoftmaxOp() {
  static const OpDef op =
      AlongAxisDef("Softmax", "exponentials along one axis, scaled to sum 1", LowerSoftmax);
  return op;
}

}  // namespace quench::ops
