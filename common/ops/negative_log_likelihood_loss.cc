#include "common/ops/loss_common.h"

namespace quench::ops {
namespace {

absl::Status LowerNegativeLogLikelihoodLoss(LowerContext& ctx) {
  LowerLoss(ctx, [&](std::span<const E> at) { return ctx.in(0).At(at); });
  return absl::OkStatus();
}

}  // namespace

const OpDef& NegativeLogLikelihoodLossOp() {
  static const OpDef op = {.name = "NegativeLogLikelihoodLoss",
                           .summary = "minus the weighted log-probability of each label",
                           .min_inputs = 2,
                           .max_inputs = 3,
                           .attributes = LossAttributes(),
                           .infer = InferLoss,
                           .lower = LowerNegativeLogLikelihoodLoss};
  return op;
}

}  // namespace quench::ops
