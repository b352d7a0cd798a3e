#include "common/ops/loss_common.h"

namespace quench::ops {
namespace {

// One sample: its class and its weight, 0 when it is ignored.
struct Sample {
  E ignored;
  E category;
  E weight;
};

Sample SampleAt(LowerContext& ctx, std::span<const E> at, DataType type) {
  Builder& b = ctx.b();
  const E label = Cast(ctx.in(1).At(at), DataType::kI64);
  Sample sample;
  sample.ignored = ctx.node().Find("ignore_index") == nullptr
                       ? b.Bool(false)
                       : label == b.I(ctx.node().Int("ignore_index", 0));
  sample.category = Select(sample.ignored, b.I(0), label);
  const E weight = ctx.has_input(2) ? ctx.in(2).At({sample.category}) : b.F(1, type);
  sample.weight = Select(sample.ignored, b.F(0, type), weight);
  return sample;
}

}  // namespace

std::vector<AttributeSpec> LossAttributes() {
  return {{"ignore_index", AttributeSpec::kInt}, {"reduction", AttributeSpec::kString}};
}

absl::Status InferLoss(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(ctx, {0, 2}));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 2));
  const Type& x = ctx.input(0);
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, x.rank() - 1, x.rank() - 1));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 2, 1, 1));
  if (x.dims[1].is(0)) return ctx.Error("there are no classes");
  if (ctx.has_input(2))
    QUENCH_RETURN_IF_ERROR(
        RequireEqual(ctx, ctx.input(2).dims[0], x.dims[1], "number of weights and classes"));
  const std::vector<Dim>& labels = ctx.input(1).dims;
  for (size_t axis = 0; axis < labels.size(); ++axis) {
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, labels[axis], x.dims[axis == 0 ? 0 : axis + 1],
                                        fmt::format("axis {} of the labels and the scores", axis)));
  }
  const std::string reduction = ctx.node().String("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean") {
    return ctx.Error(fmt::format("reduction is `{}`, it is none, sum or mean", reduction));
  }
  ctx.SetOutput(0, x.dtype, reduction == "none" ? labels : std::vector<Dim>{});
  return absl::OkStatus();
}

void LowerLoss(LowerContext& ctx, const std::function<E(std::span<const E>)>& log_probability) {
  Builder& b = ctx.b();
  const B labels = ctx.in(1);
  const E classes = ctx.in(0).dim(1);
  const DataType type = loops::ComputeType(ctx.input(0).dtype);
  const std::string reduction = ctx.node().String("reduction", "mean");
  const std::vector<Dim>& dims = ctx.input(1).dims;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    EnsureEqual(ctx, dims[axis], ctx.input(0).dims[axis == 0 ? 0 : axis + 1],
                "dims of labels and scores");
  }
  if (ctx.has_input(2))
    EnsureEqual(ctx, ctx.input(2).dims[0], ctx.input(0).dims[1], "number of weights and classes");
  b.ParallelForAll(DimsOf(labels), [&](std::span<const E> at) {
    const E label = b.Let(Cast(labels.At(at), DataType::kI64), "label");
    E fine = label >= b.I(0) && label < classes;
    if (ctx.node().Find("ignore_index") != nullptr)
      fine = fine || label == b.I(ctx.node().Int("ignore_index", 0));
    b.Check(fine, fmt::format("node `{}`: a label is out of range", ctx.node().name));
  });
  const auto loss = [&](std::span<const E> at) {
    const Sample sample = SampleAt(ctx, at, type);
    const E value = log_probability(Inserted(at, 1, sample.category));
    return Select(sample.ignored, b.F(0, type), -(value * sample.weight));
  };
  if (reduction == "none") {
    b.ParallelForAll(DimsOf(labels),
                     [&](std::span<const E> at) { b.Store(ctx.out(0), at, loss(at)); });
    return;
  }
  // One number out of many: summed in f64, so that the order of the samples does not show.
  const auto sum = [&](const std::function<E(std::span<const E>)>& term) {
    return b.ReduceAll(BinaryOp::kAdd, b.F(0, DataType::kF64), DimsOf(labels),
                       [&](std::span<const E> at) { return Cast(term(at), DataType::kF64); });
  };
  E total = sum(loss);
  if (reduction == "mean")
    total = total / sum([&](std::span<const E> at) { return SampleAt(ctx, at, type).weight; });
  total = Cast(total, type);
  b.Store(ctx.out(0), {}, total);
}

}  // namespace quench::ops
