#include "common/ops/softmax_common.h"

namespace quench::ops {
namespace {

absl::Status InferLpNormalization(InferContext& ctx) {
  const int64_t p = ctx.node().Int("p", 2);
  if (p != 1 && p != 2) return ctx.Error(fmt::format("p is {}, LpNormalization takes 1 and 2", p));
  return InferAlongAxis(ctx);
}

// A vector of zeros stays as it is.
absl::Status LowerLpNormalization(LowerContext& ctx) {
  const bool squares = ctx.node().Int("p", 2) == 2;
  ForEachVector(ctx, /*scratch=*/false, [&](const AxisVector& v) {
    Builder& b = v.b;
    const E sum = b.Reduce(BinaryOp::kAdd, b.F(0, v.type), v.size, [&](E k) {
      return squares ? v.load(k) * v.load(k) : Unary(UnaryOp::kAbs, v.load(k));
    });
    const E norm = b.Let(squares ? Unary(UnaryOp::kSqrt, sum) : sum, "norm");
    const E divisor = b.Let(Select(norm == b.F(0, v.type), b.F(1, v.type), norm), "divisor");
    b.ParallelFor(v.size, [&](E k) { v.store(k, v.load(k) / divisor); });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& LpNormalizationOp() {
  static const OpDef op = {
      .name = "LpNormalization",
      .summary = "divides by the L1 or L2 norm along one axis",
      .attributes = {{"axis", AttributeSpec::kInt}, {"p", AttributeSpec::kInt}},
      .work = WorkKind::kNormalisation,
      .infer = InferLpNormalization,
      .lower = LowerLpNormalization};
  return op;
}

}  // namespace quench::ops
