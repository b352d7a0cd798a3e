#include <algorithm>

#include "common/ops/normalization_common.h"

namespace quench::ops {
namespace {

absl::Status InferLayerNormalization(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(InferTailNormalization(ctx));
  QUENCH_ASSIGN_OR_RETURN(const DataType stash, StashType(ctx));
  const auto axis =
      static_cast<size_t>(NormalAxis(ctx.node().Int("axis", -1), ctx.input(0).rank()));
  std::vector<Dim> statistics = ctx.input(0).dims;
  std::fill(statistics.begin() + static_cast<int64_t>(axis), statistics.end(), Dim(1));
  ctx.SetOutput(1, stash, statistics);
  ctx.SetOutput(2, stash, statistics);
  return absl::OkStatus();
}

absl::Status LowerLayerNormalization(LowerContext& ctx) {
  LowerTailNormalization(ctx, [&](const TailRow& row) {
    Builder& b = row.b;
    const E count = row.Count();
    const E mean = b.Let(row.Sum([](E x) { return x; }) / count, "mean");
    const E variance = row.Sum([&](E x) { return (x - mean) * (x - mean); }) / count;
    const E inverse =
        b.Let(b.F(1, row.type) / Unary(UnaryOp::kSqrt, variance + row.Epsilon(ctx)), "inverse");
    if (ctx.has_output(1)) b.Store(ctx.out(1), row.statistics, mean);
    if (ctx.has_output(2)) b.Store(ctx.out(2), row.statistics, inverse);
    return [mean, inverse](E x) { return (x - mean) * inverse; };
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& LayerNormalizationOp() {
  static const OpDef op = {
      .name = "LayerNormalization",
      .summary = "mean 0 and variance 1 over the trailing axes, then scale and bias",
      .min_inputs = 2,
      .max_inputs = 3,
      .max_outputs = 3,
      .attributes = {{"axis", AttributeSpec::kInt},
                     {"epsilon", AttributeSpec::kFloat},
                     {"stash_type", AttributeSpec::kInt}},
      .work = WorkKind::kNormalisation,
      .infer = InferLayerNormalization,
      .lower = LowerLayerNormalization};
  return op;
}

}  // namespace quench::ops
