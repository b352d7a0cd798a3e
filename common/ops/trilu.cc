#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferTrilu(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kPlainTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 2));
  ctx.SetOutput(0, ctx.input(0).dtype, ctx.input(0).dims);
  return absl::OkStatus();
}

absl::Status LowerTrilu(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const bool upper = ctx.node().Int("upper", 1) != 0;
  const E k = ctx.has_input(1) ? b.Let(Element(ctx, 1, 0), "k") : b.I(0);
  const E zero = b.F(0, loops::ComputeType(x.dtype()));
  b.ParallelForAll(DimsOf(x), [&](std::span<const E> i) {
    const E diagonal = i[i.size() - 1] - i[i.size() - 2];
    b.Store(ctx.out(0), i, Select(upper ? diagonal >= k : diagonal <= k, x.At(i), zero));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& TriluOp() {
  static const OpDef op = {.name = "Trilu",
                           .summary = "the upper or lower triangle of matrices, else 0",
                           .min_inputs = 1,
                           .max_inputs = 2,
                           .attributes = {{"upper", AttributeSpec::kInt}},
                           .infer = InferTrilu,
                           .lower = LowerTrilu};
  return op;
}

}  // namespace quench::ops
