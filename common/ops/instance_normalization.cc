#include "common/ops/normalization_common.h"

namespace quench::ops {
namespace {

absl::Status InferInstanceNormalization(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 3));
  const Type& x = ctx.input(0);
  for (int i = 1; i <= 2; ++i) {
    QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 1, 1));
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, ctx.input(i).dims[0], x.dims[1],
                                        fmt::format("size of input {} and channels", i)));
  }
  ctx.SetOutput(0, x.dtype, x.dims);
  return absl::OkStatus();
}

absl::Status LowerInstanceNormalization(LowerContext& ctx) {
  for (int i = 1; i <= 2; ++i)
    EnsureEqual(ctx, ctx.input(i).dims[0], ctx.input(0).dims[1],
                "sizes of scale, bias and channels");
  LowerGroupNormalization(ctx, ctx.in(0).dim(1), ctx.b().I(1),
                          loops::ComputeType(ctx.input(0).dtype));
  return absl::OkStatus();
}

}  // namespace

const OpDef& InstanceNormalizationOp() {
  static const OpDef op = {
      .name = "InstanceNormalization",
      .summary = "mean 0 and variance 1 per sample and channel, then scale and bias",
      .min_inputs = 3,
      .max_inputs = 3,
      .attributes = {{"epsilon", AttributeSpec::kFloat}},
      .work = WorkKind::kNormalisation,
      .infer = InferInstanceNormalization,
      .lower = LowerInstanceNormalization};
  return op;
}

}  // namespace quench::ops
