#include "common/ops/pool_shape.h"

namespace quench::ops {

const OpDef& GlobalMaxPoolOp() {
  static const OpDef op = {
      .name = "GlobalMaxPool",
      .summary = "greatest element over all spatial dims",
      .quant = QuantRole::kPassThrough,
      .work = WorkKind::kPooling,
      .infer = [](InferContext& c) { return InferGlobalPool(c, kFloatTypes); },
      .lower =
          [](LowerContext& c) {
            return LowerGlobalPool(
                c, BinaryOp::kMax, [](E x) { return x; }, [](E greatest, E) { return greatest; });
          },
  };
  return op;
}

}  // namespace quench::ops
