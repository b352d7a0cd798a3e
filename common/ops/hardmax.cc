#include "common/ops/softmax_common.h"

namespace quench::ops {
namespace {

absl::Status LowerHardmax(LowerContext& ctx) {
  ForEachVector(ctx, /*scratch=*/false, [](const AxisVector& v) {
    Builder& b = v.b;
    const E largest =
        b.Let(b.Reduce(BinaryOp::kMax, LowestOf(b, v.type), v.size, v.load), "largest");
    const E place = b.Let(b.Reduce(BinaryOp::kMin, v.size, v.size,
                                   [&](E k) { return Select(v.load(k) == largest, k, v.size); }),
                          "place");
    b.ParallelFor(v.size, [&](E k) { v.store(k, Cast(k == place, v.type)); });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& HardmaxOp() {
  static const OpDef op = AlongAxisDef(
      "Hardmax", "1 at the first largest element along one axis, else 0", LowerHardmax);
  return op;
}

}  // namespace quench::ops
