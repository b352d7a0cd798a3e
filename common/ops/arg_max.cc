#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status LowerArgMax(LowerContext& ctx) { return LowerArg(ctx, BinaryOp::kMax); }

}  // namespace

const OpDef& ArgMaxOp() {
  static const OpDef op =
      ArgDef("ArgMax", "place of the largest element along one axis", LowerArgMax);
  return op;
}

}  // namespace quench::ops
