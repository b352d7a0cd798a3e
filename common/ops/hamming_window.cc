#include "common/ops/window_common.h"

namespace quench::ops {
namespace {

absl::Status LowerHammingWindow(LowerContext& ctx) {
  return LowerWindow(ctx, 25.0 / 46, 21.0 / 46, 0);
}

}  // namespace

const OpDef& HammingWindowOp() {
  static const OpDef op =
      WindowDef("HammingWindow", "raised cosine window on a pedestal", LowerHammingWindow);
  return op;
}

}  // namespace quench::ops
