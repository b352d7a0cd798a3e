// The copy of its input that a convolution reads: with a border, gathered by channels, widened.
#pragma once

#include "services/codegen/kernels/conv_plan.h"
#include "services/codegen/kernels/pad_rows.h"

namespace quench::codegen {

// The copies in the plan; `zero` is LoadRunZero's of the input.
PaddedRows CopiedRows(VectorBuilder& b, const ConvPlan& plan, const RunZero& zero);

// Image n of the convolution's input, which is `source`.
Ptr SourceImage(VectorBuilder& b, const ConvPlan& plan, Ptr source, Int n);

// Copies whole images, one row per task.
class ConvPreparation final : public VectorCode {
 public:
  ConvPreparation(Group group, ConvPlan plan, BufferMap buffers)
      : group_(std::move(group)), plan_(std::move(plan)), buffers_(std::move(buffers)) {}
  absl::Status Emit(VectorBuilder& b) const override;

 private:
  const Group group_;
  const ConvPlan plan_;
  const BufferMap buffers_;
};

}  // namespace quench::codegen
