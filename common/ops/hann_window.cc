#include "common/ops/window_common.h"

namespace quench::ops {
namespace {

absl::Status LowerHannWindow(LowerContext& ctx) { return LowerWindow(ctx, 0.5, 0.5, 0); }

}  // namespace

const OpDef& HannWindowOp() {
  static const OpDef op = WindowDef("HannWindow", "raised cosine window", LowerHannWindow);
  return op;
}

}  // namespace quench::ops
