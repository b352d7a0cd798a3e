// Code shared by HannWindow, HammingWindow and BlackmanWindow.
#pragma once

#include "common/ops/nest.h"

namespace quench::ops {

absl::Status InferWindow(InferContext& ctx);
absl::Status LowerWindowSizes(LowerContext& ctx);
// out[i] = a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n), n the size, or one less for a symmetric
// window.
absl::Status LowerWindow(LowerContext& ctx, double a0, double a1, double a2);
OpDef WindowDef(const std::string& name, const std::string& summary,
                absl::Status (*lower)(LowerContext&));

}  // namespace quench::ops
