#include <algorithm>

#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Dims when the shape is data: an axis of the input that is larger than 1 keeps its size, whatever
// a run asks for.
absl::StatusOr<std::vector<Dim>> RuntimeShape(InferContext& ctx) {
  const std::vector<Dim>& from = ctx.input(0).dims;
  QUENCH_ASSIGN_OR_RETURN(const int length, RankFromLength(ctx, 1));
  const auto asked = static_cast<size_t>(length);
  const size_t rank = std::max(asked, from.size());
  std::vector<Dim> dims;
  for (size_t i = 0; i < rank; ++i) {
    const bool inside = i + from.size() >= rank;
    const Dim own = inside ? from[i + from.size() - rank] : Dim(1);
    const bool fixed = i + asked < rank || ctx.symbols().BoundsOf(own).min > 1;
    dims.push_back(fixed ? own : ctx.RuntimeDim(static_cast<int>(i), std::nullopt));
  }
  return dims;
}

void PropagateExpandElements(InferContext& ctx, const std::vector<Dim>& dims) {
  const auto elements = ctx.elements(0);
  if (!elements || dims.size() > 1) return;
  if (dims == ctx.input(0).dims) {
    ctx.SetElements(0, *elements);
  } else if (dims[0].is_static() && elements->size() == 1 && dims[0].value() <= 1024) {
    ctx.SetElements(0, std::vector<Dim>(static_cast<size_t>(dims[0].value()), elements->front()));
  }
}

absl::Status InferExpand(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1, 1));
  const Type& x = ctx.input(0);
  std::vector<Dim> dims;
  if (const auto shape = ctx.elements(1)) {
    for (const Dim dim : *shape) {
      if (dim.is_static() && dim.value() < 0)
        return ctx.Error(fmt::format("shape has {}, sizes are at least 0", dim.value()));
    }
    QUENCH_ASSIGN_OR_RETURN(dims, ctx.Broadcast(std::vector<std::vector<Dim>>{x.dims, *shape}));
  } else {
    QUENCH_ASSIGN_OR_RETURN(dims, RuntimeShape(ctx));
  }
  ctx.SetOutput(0, x.dtype, dims);
  PropagateExpandElements(ctx, dims);
  return absl::OkStatus();
}

absl::Status LowerSizesOfExpand(LowerContext& ctx) {
  const std::vector<Dim>& dims = ctx.output(0).dims;
  const int64_t asked = ctx.input(1).dims[0].value();
  const auto rank = static_cast<int64_t>(dims.size());
  for (int64_t i = rank - asked; i < rank; ++i) {
    E size = ctx.b().Let(Element(ctx, 1, i - (rank - asked)), "size");
    const auto axis = static_cast<int>(i - (rank - ctx.input(0).rank()));
    if (axis >= 0) size = Select(size == ctx.b().I(1), ctx.in(0).dim(axis), size);
    SetRuntimeDim(ctx, dims[static_cast<size_t>(i)], size);
  }
  return absl::OkStatus();
}

// Fails the run where the shape asks for a size that the input does not broadcast to.
void EnsureShape(LowerContext& ctx) {
  Builder& b = ctx.b();
  const auto shape = ctx.elements(1);
  const auto asked = static_cast<size_t>(shape ? static_cast<int64_t>(shape->size())
                                               : ctx.input(1).dims[0].value());
  const std::vector<Dim>& dims = ctx.output(0).dims;
  for (size_t i = 0; i < asked; ++i) {
    const size_t axis = dims.size() - asked + i;
    if (shape && ((*shape)[i].is(1) || (*shape)[i] == dims[axis])) continue;
    const E size = b.Let(Element(ctx, 1, static_cast<int64_t>(i)), "asked");
    b.Check(size == b.I(1) || size == ctx.Extent(dims[axis]),
            fmt::format("node `{}`: cannot broadcast the input to the shape in axis {}",
                        ctx.node().name, axis));
  }
}

absl::Status LowerExpand(LowerContext& ctx) {
  EnsureShape(ctx);
  const B y = ctx.out(0);
  const BroadcastLoad x = BroadcastLoad::RightAligned(ctx, 0, ctx.output(0).dims);
  ctx.b().ParallelForAll(DimsOf(y), [&](std::span<const E> i) { ctx.b().Store(y, i, x.At(i)); });
  return absl::OkStatus();
}

}  // namespace

const OpDef& ExpandOp() {
  static const OpDef op = {.name = "Expand",
                           .summary = "broadcasts a tensor to a shape",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .quant = QuantRole::kPassThrough,
                           .infer = InferExpand,
                           .lower = LowerExpand,
                           .lower_sizes = LowerSizesOfExpand};
  return op;
}

}  // namespace quench::ops
