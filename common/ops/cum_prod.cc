#include "common/ops/cumulative.h"

namespace quench::ops {

const OpDef& CumProdOp() {
  static const OpDef op = {
      .name = "CumProd",
      .summary = "running product along an axis",
      .min_inputs = 2,
      .max_inputs = 2,
      .attributes = {{"exclusive", AttributeSpec::kInt}, {"reverse", AttributeSpec::kInt}},
      .infer = InferCumulative,
      .lower = [](LowerContext& c) { return LowerCumulative(c, BinaryOp::kMul, 1); },
  };
  return op;
}

}  // namespace quench::ops
