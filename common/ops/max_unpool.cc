#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Spatial sizes that MaxPool with these attributes would have had as input.
absl::StatusOr<std::vector<Dim>> PooledFrom(const OpContext& ctx) {
  const Type& x = ctx.input(0);
  const auto axes = static_cast<size_t>(x.rank() - 2);
  const std::vector<int64_t> kernel = ctx.node().Ints("kernel_shape");
  std::vector<int64_t> strides = ctx.node().Ints("strides");
  std::vector<int64_t> pads = ctx.node().Ints("pads");
  if (strides.empty()) strides.assign(axes, 1);
  if (pads.empty()) pads.assign(2 * axes, 0);
  if (kernel.size() != axes || strides.size() != axes || pads.size() != 2 * axes) {
    return ctx.Error(fmt::format("kernel_shape, strides and pads must have {}, {} and {} entries",
                                 axes, axes, 2 * axes));
  }
  std::vector<Dim> dims = {x.dims[0], x.dims[1]};
  SymbolTable& symbols = ctx.symbols();
  for (size_t i = 0; i < axes; ++i) {
    if (kernel[i] < 1 || strides[i] < 1) return ctx.Error("kernel_shape and strides must be > 0");
    const Dim size = symbols.Mul(symbols.Sub(x.dims[i + 2], 1), strides[i]);
    dims.push_back(symbols.Add(size, kernel[i] - pads[i] - pads[i + axes]));
  }
  return dims;
}

absl::Status InferMaxUnpool(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 3));
  const Type& x = ctx.input(0);
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, x.rank(), x.rank()));
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, ctx.input(1).dims[at], x.dims[at],
                                        fmt::format("axis {} of X and I", axis)));
  }
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, PooledFrom(ctx));
  if (ctx.has_input(2)) {
    const auto given = ctx.elements(2);
    if (!given) return ctx.UnsupportedError("output_shape is known only at run time");
    if (given->size() != dims.size())
      return ctx.Error(
          fmt::format("output_shape has {} entries, the rank is {}", given->size(), dims.size()));
    dims = *given;
  }
  ctx.SetOutput(0, x.dtype, std::move(dims));
  return absl::OkStatus();
}

// Indices count in the tensor that was pooled; an `output_shape` that is larger keeps the
// coordinates.
absl::Status LowerMaxUnpool(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Dim> pooled, PooledFrom(ctx));
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  std::vector<E> dims;
  for (const Dim dim : pooled) dims.push_back(b.Let(ctx.Extent(dim), "pooled"));
  for (size_t axis = 0; axis < pooled.size(); ++axis) {
    EnsureEqual(ctx, ctx.input(1).dims[axis], ctx.input(0).dims[axis], "dims of X and I");
    b.Check(dims[axis] <= y.dim(static_cast<int>(axis)),
            fmt::format("node `{}`: output_shape is too small", ctx.node().name));
  }
  b.ParallelForAll(DimsOf(y), [&](std::span<const E> i) {
    b.Store(y, i, b.F(0, loops::ComputeType(y.dtype())));
  });
  const E total = b.Let(ProductOf(b, dims), "total");
  SerialForAll(b, DimsOf(x), [&](std::span<const E> i) {
    const E place = b.Let(ctx.in(1).At(i), "place");
    b.Check(place >= b.I(0) && place < total,
            fmt::format("node `{}`: an index of MaxUnpool is out of range", ctx.node().name));
    b.Store(y, Unflatten(b, place, dims), x.At(i));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& MaxUnpoolOp() {
  static const OpDef op = {.name = "MaxUnpool",
                           .summary = "puts pooled maxima back where they came from",
                           .min_inputs = 2,
                           .max_inputs = 3,
                           .attributes = {{"kernel_shape", AttributeSpec::kInts, true},
                                          {"pads", AttributeSpec::kInts},
                                          {"strides", AttributeSpec::kInts}},
                           .infer = InferMaxUnpool,
                           .lower = LowerMaxUnpool};
  return op;
}

}  // namespace quench::ops
