// The copy of its input that a convolution reads: with a border, gathered by channels, widened.
#pragma once

#include "services/codegen/kernels/conv_plan.h"
#include "services/codegen/kernels/pad_rows.h"
#include "services/codegen/kernels/planned_kernel.h"

namespace quench::codegen {

// The copies in the plan; `zero` is LoadRunZero's of the input.
PaddedRows CopiedRows(VectorBuilder& b, const ConvPlan& plan, const RunZero& zero);

// Image n of the convolution's input, which is `source`.
Ptr SourceImage(VectorBuilder& b, const ConvPlan& plan, Ptr source, Int n);

// Copies whole images, one row per task.
absl::Status EmitConvCopy(VectorBuilder& b, const Planned<ConvPlan>& conv);

}  // namespace quench::codegen
