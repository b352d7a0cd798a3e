#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferReverseSequence(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 2));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1, 1));
  const int64_t batch = ctx.node().Int("batch_axis", 1);
  const int64_t time = ctx.node().Int("time_axis", 0);
  if (batch + time != 1 || batch * time != 0) {
    return ctx.Error(fmt::format("batch_axis is {} and time_axis {}, one must be 0 and the other 1",
                                 batch, time));
  }
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, ctx.input(1).dims[0],
                                      ctx.input(0).dims[static_cast<size_t>(batch)],
                                      "number of lengths and batch"));
  ctx.SetOutput(0, ctx.input(0).dtype, ctx.input(0).dims);
  return absl::OkStatus();
}

absl::Status LowerReverseSequence(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const auto batch = static_cast<size_t>(ctx.node().Int("batch_axis", 1));
  const auto time = static_cast<size_t>(ctx.node().Int("time_axis", 0));
  EnsureEqual(ctx, ctx.input(1).dims[0], ctx.input(0).dims[batch], "number of lengths and batch");
  const std::vector<E> dims = DimsOf(x);
  const std::vector<E> rest(dims.begin() + 2, dims.end());
  b.ParallelForAll(std::vector<E>{dims[0], dims[1]}, [&](std::span<const E> i) {
    const E length = b.Let(ctx.in(1).At({i[batch]}), "length");
    b.Check(length >= b.I(0) && length <= dims[time],
            fmt::format("node `{}`: a sequence length is out of range", ctx.node().name));
    const std::vector<E> target(i.begin(), i.end());
    const E from = b.Let(Select(i[time] < length, length - b.I(1) - i[time], i[time]), "from");
    const std::vector<E> source = Replaced(i, static_cast<int>(time), from);
    b.ParallelForAll(rest, [&](std::span<const E> tail) {
      std::vector<E> to = target;
      std::vector<E> at = source;
      to.insert(to.end(), tail.begin(), tail.end());
      at.insert(at.end(), tail.begin(), tail.end());
      b.Store(ctx.out(0), to, x.At(at));
    });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& ReverseSequenceOp() {
  static const OpDef op = {
      .name = "ReverseSequence",
      .summary = "reverses the first part of each sequence",
      .min_inputs = 2,
      .max_inputs = 2,
      .attributes = {{"batch_axis", AttributeSpec::kInt}, {"time_axis", AttributeSpec::kInt}},
      .infer = InferReverseSequence,
      .lower = LowerReverseSequence};
  return op;
}

}  // namespace quench::ops
