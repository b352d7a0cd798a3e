#include "common/ops/window_common.h"

namespace quench::ops {
namespace {

absl::Status LowerBlackmanWindow(LowerContext& ctx) { return LowerWindow(ctx, 0.42, 0.5, 0.08); }

}  // namespace

const OpDef& BlackmanWindowOp() {
  static const OpDef op =
      WindowDef("BlackmanWindow", "window of three cosine terms", LowerBlackmanWindow);
  return op;
}

}  // namespace quench::ops
