#include "common/ops/normalization_common.h"

namespace quench::ops {
namespace {

absl::Status InferRMSNormalization(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(StashType(ctx).status());
  return InferTailNormalization(ctx);
}

absl::Status LowerRMSNormalization(LowerContext& ctx) {
  LowerTailNormalization(ctx, [&](const TailRow& row) {
    Builder& b = row.b;
    const E square = row.Sum([](E x) { return x * x; }) / row.Count();
    const E inverse =
        b.Let(b.F(1, row.type) / Unary(UnaryOp::kSqrt, square + row.Epsilon(ctx)), "inverse");
    return [inverse](E x) { return x * inverse; };
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& RMSNormalizationOp() {
  static const OpDef op = {.name = "RMSNormalization",
                           .summary = "root mean square 1 over the trailing axes, then scale",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .attributes = {{"axis", AttributeSpec::kInt},
                                          {"epsilon", AttributeSpec::kFloat},
                                          {"stash_type", AttributeSpec::kInt}},
                           .work = WorkKind::kNormalisation,
                           .infer = InferRMSNormalization,
                           .lower = LowerRMSNormalization};
  return op;
}

}  // namespace quench::ops
