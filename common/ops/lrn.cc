#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferLRN(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 2));
  if (ctx.node().Int("size", 1) < 1)
    return ctx.Error(fmt::format("size is {}, it is at least 1", ctx.node().Int("size", 1)));
  ctx.SetOutput(0, ctx.input(0).dtype, ctx.input(0).dims);
  return absl::OkStatus();
}

// x / (bias + alpha / size * sum of squares of the nearest `size` channels) ^ beta
absl::Status LowerLRN(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const DataType type = loops::ComputeType(x.dtype());
  const int64_t size = ctx.node().Int("size", 1);
  const int64_t before = (size - 1) / 2;
  const int64_t after = size - 1 - before;
  const E scale = b.F(ctx.node().Float("alpha", 1e-4) / static_cast<double>(size), type);
  const E bias = b.F(ctx.node().Float("bias", 1.0), type);
  const double beta = ctx.node().Float("beta", 0.75);
  b.ParallelForAll(DimsOf(x), [&](std::span<const E> i) {
    const std::vector<E> at(i.begin(), i.end());
    const E begin = b.Let(Max(at[1] - b.I(before), b.I(0)), "begin");
    const E end = b.Let(Min(at[1] + b.I(after + 1), x.dim(1)), "end");
    const E sum = b.Reduce(BinaryOp::kAdd, b.F(0, type), begin, end, [&](E c) {
      const E value = x.At(Replaced(at, 1, c));
      return value * value;
    });
    b.Store(ctx.out(0), at, x.At(at) / Pow(bias + scale * sum, b.F(beta, type)));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& LRNOp() {
  static const OpDef op = {.name = "LRN",
                           .summary = "divides by the energy of the neighbouring channels",
                           .attributes = {{"size", AttributeSpec::kInt, true},
                                          {"alpha", AttributeSpec::kFloat},
                                          {"beta", AttributeSpec::kFloat},
                                          {"bias", AttributeSpec::kFloat}},
                           .work = WorkKind::kNormalisation,
                           .infer = InferLRN,
                           .lower = LowerLRN};
  return op;
}

}  // namespace quench::ops
