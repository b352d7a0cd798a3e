#include "common/ops/loss_common.h"

namespace quench::ops {
namespace {

absl::Status InferSoftmaxCrossEntropyLoss(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(InferLoss(ctx));
  ctx.SetOutput(1, ctx.input(0).dtype, ctx.input(0).dims);
  return absl::OkStatus();
}

// log-probability = score - log(sum of exp(scores)); the sum is computed once per sample, around
// the largest score.
absl::Status LowerSoftmaxCrossEntropyLoss(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const DataType type = loops::ComputeType(x.dtype());
  const std::vector<E> samples = Erased(DimsOf(x), 1);
  const B log_sum = b.Scratch("log_sum", type, samples, loops::ScratchScope::kFunction);
  b.ParallelForAll(samples, [&](std::span<const E> i) {
    const std::vector<E> at(i.begin(), i.end());
    const auto score = [&](E c) { return x.At(Inserted(at, 1, c)); };
    const E largest =
        b.Let(b.Reduce(BinaryOp::kMax, LowestOf(b, type), x.dim(1), score), "largest");
    const E sum = b.Reduce(BinaryOp::kAdd, b.F(0, type), x.dim(1),
                           [&](E c) { return Unary(UnaryOp::kExp, score(c) - largest); });
    b.Store(log_sum, at, largest + Unary(UnaryOp::kLog, sum));
  });
  const auto log_probability = [&](std::span<const E> at) {
    return x.At(at) - log_sum.At(Erased(at, 1));
  };
  if (ctx.has_output(0)) LowerLoss(ctx, log_probability);
  if (ctx.has_output(1)) {
    b.ParallelForAll(DimsOf(x),
                     [&](std::span<const E> at) { b.Store(ctx.out(1), at, log_probability(at)); });
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& SoftmaxCrossEntropyLossOp() {
  static const OpDef op = {.name = "SoftmaxCrossEntropyLoss",
                           .summary = "cross entropy of softmax scores and labels",
                           .min_inputs = 2,
                           .max_inputs = 3,
                           .max_outputs = 2,
                           .attributes = LossAttributes(),
                           .infer = InferSoftmaxCrossEntropyLoss,
                           .lower = LowerSoftmaxCrossEntropyLoss};
  return op;
}

}  // namespace quench::ops
