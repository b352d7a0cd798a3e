#include "common/ops/reduce_common.h"

namespace quench::ops {
namespace {

absl::Status LowerArgMin(LowerContext& ctx) { return LowerArg(ctx, BinaryOp::kMin); }

}  // namespace

const OpDef& ArgMinOp() {
  static const OpDef op =
      ArgDef("ArgMin", "place of the smallest element along one axis", LowerArgMin);
  return op;
}

}  // namespace quench::ops
