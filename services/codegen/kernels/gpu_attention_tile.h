// The code of a block of attention.
#pragma once

#include "services/codegen/kernels/gpu_attention_plan.h"
#include "services/codegen/kernels/planned_kernel.h"

namespace quench::codegen {

absl::Status EmitGpuAttentionTile(VectorBuilder& b, const Planned<GpuAttentionPlan>& attention,
                                  const GpuAttentionTile& tile);

}  // namespace quench::codegen
