#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Picks from known contents at known places: the heart of shape arithmetic.
void PropagateGatherElements(InferContext& ctx) {
  const auto elements = ctx.elements(0);
  const auto indices = ctx.ints(1);
  if (!elements || !indices || ctx.input(0).rank() != 1 || ctx.input(1).rank() > 1) return;
  const auto size = static_cast<int64_t>(elements->size());
  std::vector<Dim> picked;
  for (int64_t index : *indices) {
    if (index < -size || index >= size) return;  // fails in the run
    picked.push_back((*elements)[static_cast<size_t>(index < 0 ? index + size : index)]);
  }
  ctx.SetElements(0, std::move(picked));
}

absl::Status InferGather(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  const Type& x = ctx.input(0);
  QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(ctx.node().Int("axis", 0), x.rank()));
  std::vector<Dim> dims(x.dims.begin(), x.dims.begin() + axis);
  dims.insert(dims.end(), ctx.input(1).dims.begin(), ctx.input(1).dims.end());
  dims.insert(dims.end(), x.dims.begin() + axis + 1, x.dims.end());
  ctx.SetOutput(0, x.dtype, std::move(dims));
  PropagateGatherElements(ctx);
  return absl::OkStatus();
}

absl::Status LowerGather(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B indices = ctx.in(1);
  const int axis = NormalAxis(ctx.node().Int("axis", 0), x.rank());
  const std::vector<E> dims = DimsOf(x);
  const std::span<const E> outer(dims.data(), static_cast<size_t>(axis));
  const std::span<const E> inner = std::span(dims).subspan(static_cast<size_t>(axis) + 1);
  const std::string what = fmt::format("node `{}`: an index of Gather", ctx.node().name);
  b.ParallelForAll(outer, [&](std::span<const E> head) {
    const std::vector<E> first(head.begin(), head.end());
    b.ParallelForAll(DimsOf(indices), [&](std::span<const E> middle) {
      std::vector<E> source = first;
      std::vector<E> target = first;
      source.push_back(CheckedIndex(b, indices.At(middle), dims[static_cast<size_t>(axis)], what));
      target.insert(target.end(), middle.begin(), middle.end());
      b.ParallelForAll(inner, [&](std::span<const E> tail) {
        std::vector<E> from = source;
        std::vector<E> to = target;
        from.insert(from.end(), tail.begin(), tail.end());
        to.insert(to.end(), tail.begin(), tail.end());
        b.Store(ctx.out(0), to, x.At(from));
      });
    });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& GatherOp() {
  static const OpDef op = {.name = "Gather",
                           .summary = "picks slices along one axis by index",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .attributes = {{"axis", AttributeSpec::kInt}},
                           .quant = QuantRole::kPassThrough,
                           .infer = InferGather,
                           .lower = LowerGather};
  return op;
}

}  // namespace quench::ops
