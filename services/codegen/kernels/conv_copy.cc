#include "services/codegen/kernels/conv_copy.h"

namespace quench::codegen {

PaddedRows CopiedRows(VectorBuilder& b, const ConvPlan& plan, const RunZero& zero) {
  const ConvShape& s = plan.shape;
  const Int width = (b.Size(s.out_w) - 1) * s.stride_w + ((s.kernel_w - 1) * s.dilation_w + 1);
  const Int row = width * (plan.pixel_words * 4);
  const int64_t rows =
      plan.band_rows(plan.by_panels ? s.out_h.value() : plan.task_tiles * plan.tile.y);
  return {.channels = s.in_channels,
          .blocks = plan.groups * plan.blocks,
          .row_major = plan.row_major_input,
          .lanes = plan.lanes,
          .block = plan.in_block,
          .pixel_words = plan.pixel_words,
          .type = s.x_type,
          .fill = s.bytes ? s.bytes->x.zero : 0,
          .run_fill = zero,
          .to_floats = plan.widens(),
          .height = b.Size(s.h),
          .width = b.Size(s.w),
          .left = s.pad_left,
          .row_pixels = width,
          .row_bytes = row,
          .block_bytes = row * rows};
}

Ptr SourceImage(VectorBuilder& b, const ConvPlan& plan, Ptr source, Int n) {
  const int64_t channels =
      plan.row_major_input ? plan.shape.in_channels : plan.groups * plan.blocks * plan.in_block;
  return source +
         n * (b.Size(plan.shape.h) * b.Size(plan.shape.w) * (channels * plan.shape.element()));
}

absl::Status EmitConvCopy(VectorBuilder& b, const Planned<ConvPlan>& conv) {
  const auto& [group, plan, buffers, packs] = conv;
  const ConvShape& s = plan.shape;
  RunZero zero;
  if (s.bytes) zero = LoadRunZero(b, group, s.bytes->x, buffers);
  const PaddedRows rows = CopiedRows(b, plan, zero);
  const int64_t count = plan.band_rows(s.out_h.value());
  const Ptr source = b.Buffer(buffers.Input(group.inputs[0]));
  const Ptr workspace = b.Buffer(buffers.Workspace());
  b.For(b.Begin(), b.End(), 1, [&](Int task) {
    const Int n = task / count;
    const Int row = task - n * count;
    PadRows(b, rows, SourceImage(b, conv.plan, source, n),
            workspace + (n * conv.plan.image_copy + row * rows.row_bytes), row - s.pad_top, b.I(1));
  });
  return absl::OkStatus();
}

}  // namespace quench::codegen
