#include "common/ops/pool_shape.h"

namespace quench::ops {

const OpDef& GlobalAveragePoolOp() {
  static const OpDef op = {
      .name = "GlobalAveragePool",
      .summary = "mean over all spatial dims",
      .quant = QuantRole::kCompute,
      .work = WorkKind::kPooling,
      .infer = [](InferContext& c) { return InferGlobalPool(c, kFloatTypes); },
      .lower =
          [](LowerContext& c) {
            return LowerGlobalPool(
                c, BinaryOp::kAdd, [](E x) { return x; },
                [](E sum, E count) { return sum / count; });
          },
  };
  return op;
}

}  // namespace quench::ops
