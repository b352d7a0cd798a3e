#include "common/ops/sorting.h"

namespace quench::ops {
namespace {

absl::Status InferTopK(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  const Type& x = ctx.input(0);
  QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(ctx.node().Int("axis", -1), x.rank()));
  const Dim size = x.dims[static_cast<size_t>(axis)];
  std::vector<Dim> dims = x.dims;
  Dim& k = dims[static_cast<size_t>(axis)];
  const auto known = ctx.elements(1);
  k = known && known->size() == 1 ? known->front() : ctx.RuntimeDim(0, size);
  if (k.is_static() && (k.value() < 0 || (size.is_static() && k.value() > size.value()))) {
    return ctx.Error(
        fmt::format("k is {}, axis {} has size {}", k.value(), axis, ctx.symbols().ToString(size)));
  }
  ctx.SetOutput(0, x.dtype, dims);
  ctx.SetOutput(1, DataType::kI64, dims);
  return absl::OkStatus();
}

absl::Status LowerSizesOfTopK(LowerContext& ctx) {
  const int axis = NormalAxis(ctx.node().Int("axis", -1), ctx.input(0).rank());
  for (int i = 0; i < 2; ++i) {
    if (ctx.has_output(i))
      SetRuntimeDim(ctx, ctx.output(i).dims[static_cast<size_t>(axis)], Element(ctx, 1, 0));
  }
  return absl::OkStatus();
}

// Equal elements come in the order of their indices, a NaN counts as the largest. `sorted` = 0
// leaves the order open, so it is sorted as well.
absl::Status LowerTopK(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const int axis = NormalAxis(ctx.node().Int("axis", -1), x.rank());
  const bool largest = ctx.node().Int("largest", 1) != 0;
  const DataType type = loops::ComputeType(x.dtype());
  const E size = x.dim(axis);
  const E k = (ctx.has_output(0) ? ctx.out(0) : ctx.out(1)).dim(axis);
  b.Check(k <= size, fmt::format("node `{}`: k of TopK is larger than the axis", ctx.node().name));
  const B values = b.Scratch("values", type, {size}, loops::ScratchScope::kIteration);
  const SortScratch scratch = MakeSortScratch(b, size, loops::ScratchScope::kIteration);
  ParallelRows(b, Erased(DimsOf(x), axis), [&](std::span<const E> row) {
    const std::vector<E> others(row.begin(), row.end());
    b.For(size, [&](E i) { b.Store(values, {i}, x.At(Inserted(others, axis, i))); });
    const E side = SortIndices(b, scratch, size, [&](E i, E j) {
      const E p = values.At({i});
      const E q = values.At({j});
      if (!IsFloat(type)) return largest ? p > q : p < q;
      const E p_nan = p != p;
      const E q_nan = q != q;
      return largest ? (p > q || (p_nan && !q_nan)) : (p < q || (q_nan && !p_nan));
    });
    b.For(k, [&](E i) {
      const E index = b.Let(scratch.items.At({side, i}), "index");
      if (ctx.has_output(0)) b.Store(ctx.out(0), Inserted(others, axis, i), values.At({index}));
      if (ctx.has_output(1)) b.Store(ctx.out(1), Inserted(others, axis, i), index);
    });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& TopKOp() {
  static const OpDef op = {
      .name = "TopK",
      .summary = "the k largest or smallest elements along one axis, with their indices",
      .min_inputs = 2,
      .max_inputs = 2,
      .max_outputs = 2,
      .attributes = {{"axis", AttributeSpec::kInt},
                     {"largest", AttributeSpec::kInt},
                     {"sorted", AttributeSpec::kInt}},
      .infer = InferTopK,
      .lower = LowerTopK,
      .lower_sizes = LowerSizesOfTopK};
  return op;
}

}  // namespace quench::ops
