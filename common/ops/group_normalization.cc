#include "common/ops/normalization_common.h"

namespace quench::ops {
namespace {

absl::Status InferGroupNormalization(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 2));
  QUENCH_RETURN_IF_ERROR(StashType(ctx).status());
  const Type& x = ctx.input(0);
  const Dim channels = x.dims[1];
  const int64_t groups = ctx.node().Int("num_groups", 1);
  if (groups < 1 || (channels.is_static() && channels.value() % groups != 0)) {
    return ctx.Error(fmt::format("num_groups is {}, it must divide the {} channels", groups,
                                 ctx.symbols().ToString(channels)));
  }
  for (int i = 1; i <= 2; ++i) {
    QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, 1, 1));
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, ctx.input(i).dims[0], channels,
                                        fmt::format("size of input {} and channels", i)));
  }
  ctx.SetOutput(0, x.dtype, x.dims);
  return absl::OkStatus();
}

absl::Status LowerGroupNormalizationNode(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const DataType stash, StashType(ctx));
  const Dim channels = ctx.input(0).dims[1];
  const int64_t groups = ctx.node().Int("num_groups", 1);
  Builder& b = ctx.b();
  for (int i = 1; i <= 2; ++i)
    EnsureEqual(ctx, ctx.input(i).dims[0], channels, "sizes of scale, bias and channels");
  const E each =
      channels.is_static() ? b.I(channels.value() / groups) : ctx.Extent(channels) / b.I(groups);
  if (!channels.is_static()) {
    b.Check(each * b.I(groups) == ctx.Extent(channels),
            fmt::format("node `{}`: num_groups does not divide the channels", ctx.node().name));
  }
  LowerGroupNormalization(ctx, b.I(groups), each, loops::ComputeType(stash));
  return absl::OkStatus();
}

}  // namespace

const OpDef& GroupNormalizationOp() {
  static const OpDef op = {
      .name = "GroupNormalization",
      .summary = "mean 0 and variance 1 over groups of channels, then scale and bias",
      .min_inputs = 3,
      .max_inputs = 3,
      .attributes = {{"num_groups", AttributeSpec::kInt, true},
                     {"epsilon", AttributeSpec::kFloat},
                     {"stash_type", AttributeSpec::kInt}},
      .work = WorkKind::kNormalisation,
      .infer = InferGroupNormalization,
      .lower = LowerGroupNormalizationNode};
  return op;
}

}  // namespace quench::ops
