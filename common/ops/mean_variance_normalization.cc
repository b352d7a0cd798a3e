#include <algorithm>

#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Added to the standard deviation; fixed by ONNX.
constexpr double kEpsilon = 1e-9;

absl::StatusOr<std::vector<int>> NormalizedAxesOf(const OpContext& ctx) {
  std::vector<int64_t> axes = {0, 2, 3};
  if (ctx.node().Find("axes") != nullptr) axes = ctx.node().Ints("axes");
  return NormalAxes(ctx, axes, ctx.input(0).rank());
}

absl::Status InferMeanVarianceNormalization(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(NormalizedAxesOf(ctx).status());
  ctx.SetOutput(0, ctx.input(0).dtype, ctx.input(0).dims);
  return absl::OkStatus();
}

absl::Status LowerMeanVarianceNormalization(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int> axes, NormalizedAxesOf(ctx));
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const DataType type = loops::ComputeType(x.dtype());
  std::vector<E> kept;
  std::vector<E> reduced;
  std::vector<bool> gone;
  for (int axis = 0; axis < x.rank(); ++axis) {
    gone.push_back(std::find(axes.begin(), axes.end(), axis) != axes.end());
    (gone.back() ? reduced : kept).push_back(x.dim(axis));
  }
  b.ParallelForAll(kept, [&](std::span<const E> outer) {
    const std::vector<E> head(outer.begin(), outer.end());
    const auto full = [&](std::span<const E> k) {
      std::vector<E> index;
      size_t next_kept = 0;
      size_t next_reduced = 0;
      for (const bool inner : gone) index.push_back(inner ? k[next_reduced++] : head[next_kept++]);
      return index;
    };
    const E count = b.Let(Cast(ProductOf(b, reduced), type), "count");
    const auto sum = [&](const std::function<E(E)>& element) {
      return b.ReduceAll(BinaryOp::kAdd, b.F(0, type), reduced,
                         [&](std::span<const E> k) { return element(x.At(full(k))); });
    };
    const E mean = b.Let(sum([](E value) { return value; }) / count, "mean");
    const E variance = sum([&](E value) { return (value - mean) * (value - mean); }) / count;
    const E deviation = b.Let(Unary(UnaryOp::kSqrt, variance) + b.F(kEpsilon, type), "deviation");
    b.ParallelForAll(reduced, [&](std::span<const E> k) {
      const std::vector<E> index = full(k);
      b.Store(ctx.out(0), index, (x.At(index) - mean) / deviation);
    });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& MeanVarianceNormalizationOp() {
  static const OpDef op = {.name = "MeanVarianceNormalization",
                           .summary = "mean 0 and variance 1 over the given axes",
                           .attributes = {{"axes", AttributeSpec::kInts}},
                           .work = WorkKind::kNormalisation,
                           .infer = InferMeanVarianceNormalization,
                           .lower = LowerMeanVarianceNormalization};
  return op;
}

}  // namespace quench::ops
