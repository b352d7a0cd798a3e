#include "common/ops/cumulative.h"

namespace quench::ops {

const OpDef& CumSumOp() {
  static const OpDef op = {
      .name = "CumSum",
      .summary = "running sum along an axis",
      .min_inputs = 2,
      .max_inputs = 2,
      .attributes = {{"exclusive", AttributeSpec::kInt}, {"reverse", AttributeSpec::kInt}},
      .infer = InferCumulative,
      .lower = [](LowerContext& c) { return LowerCumulative(c, BinaryOp::kAdd, 0); },
  };
  return op;
}

}  // namespace quench::ops
