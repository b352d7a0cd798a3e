#include "common/ops/softmax_common.h"

namespace quench::ops {
namespace {

// x - max - log(sum of exp(x - max))
absl::Status LowerLogSoftmax(LowerContext& ctx) {
  ForEachVector(ctx, /*scratch=*/false, [](const AxisVector& v) {
    Builder& b = v.b;
    const E largest =
        b.Let(b.Reduce(BinaryOp::kMax, LowestOf(b, v.type), v.size, v.load), "largest");
    const E sum = b.Reduce(BinaryOp::kAdd, b.F(0, v.type), v.size,
                           [&](E k) { return Unary(UnaryOp::kExp, v.load(k) - largest); });
    const E log_sum = b.Let(Unary(UnaryOp::kLog, sum), "log_sum");
    b.ParallelFor(v.size, [&](E k) { v.store(k, v.load(k) - largest - log_sum); });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& LogSoftmaxOp() {
  static const OpDef op = AlongAxisDef("LogSoftmax", "logarithm of Softmax", LowerLogSoftmax);
  return op;
}

}  // namespace quench::ops
