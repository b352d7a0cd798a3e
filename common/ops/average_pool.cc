#include "common/ops/pool_shape.h"

namespace quench::ops {
namespace {

absl::Status LowerAveragePool(LowerContext& c) {
  LowerPool(c, [](LowerContext& op, const PoolWindow& window) {
    loops::Builder& b = op.b();
    const DataType type = loops::ComputeType(op.input(0).dtype);
    const bool padded = op.node().Int("count_include_pad", 0) != 0;
    E count = b.I(1);
    for (size_t d = 0; d < window.axes.size(); ++d) {
      const E own = padded ? window.axes[d].CountPadded(window.index[d + 2]) : window.extents[d];
      count = count * own;
    }
    const E sum =
        b.ReduceAll(BinaryOp::kAdd, b.F(0, type), window.extents,
                    [&](std::span<const E> term) { return op.in(0).At(window.at(term)); });
    b.Store(op.out(0), window.index, sum / Cast(Max(count, b.I(1)), type));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& AveragePoolOp() {
  static const OpDef op = {
      .name = "AveragePool",
      .summary = "mean of each window, with or without the padding",
      .attributes = WindowAttributes(
          /*pooling=*/true,
          {{"ceil_mode", AttributeSpec::kInt}, {"count_include_pad", AttributeSpec::kInt}}),
      .quant = QuantRole::kCompute,
      .work = WorkKind::kPooling,
      .infer = [](InferContext& c) { return InferPool(c, kFloatTypes); },
      .lower = LowerAveragePool,
  };
  return op;
}

}  // namespace quench::ops
