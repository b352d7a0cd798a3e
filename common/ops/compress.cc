#include "common/ops/nest.h"

namespace quench::ops {
namespace {

bool HasAxis(const OpContext& ctx) { return ctx.node().Find("axis") != nullptr; }

absl::Status InferCompress(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kBoolType));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 1, 1));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1));
  const Type& x = ctx.input(0);
  const Dim conditions = ctx.input(1).dims[0];
  if (!HasAxis(ctx)) {
    ctx.SetOutput(
        0, x.dtype,
        {ctx.RuntimeDim(0, ctx.symbols().Min(conditions, ctx.symbols().Product(x.dims)))});
    return absl::OkStatus();
  }
  QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(ctx.node().Int("axis", 0), x.rank()));
  std::vector<Dim> dims = x.dims;
  Dim& dim = dims[static_cast<size_t>(axis)];
  dim = ctx.RuntimeDim(0, ctx.symbols().Min(conditions, dim));
  ctx.SetOutput(0, x.dtype, std::move(dims));
  return absl::OkStatus();
}

// Conditions beyond the end of the data are not looked at; missing ones are false.
E Considered(LowerContext& ctx) {
  const B x = ctx.in(0);
  const E size = HasAxis(ctx) ? x.dim(NormalAxis(ctx.node().Int("axis", 0), x.rank()))
                              : ProductOf(ctx.b(), DimsOf(x));
  return ctx.b().Let(Min(ctx.in(1).dim(0), size), "considered");
}

absl::Status LowerSizesOfCompress(LowerContext& ctx) {
  Builder& b = ctx.b();
  const size_t axis =
      HasAxis(ctx) ? static_cast<size_t>(NormalAxis(ctx.node().Int("axis", 0), ctx.input(0).rank()))
                   : 0;
  const E count = b.Reduce(BinaryOp::kAdd, b.I(0), Considered(ctx),
                           [&](E i) { return Cast(ctx.in(1).At({i}), DataType::kI64); });
  SetRuntimeDim(ctx, ctx.output(0).dims[axis], count);
  return absl::OkStatus();
}

absl::Status LowerCompress(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const B y = ctx.out(0);
  const auto count = b.Local(b.I(0), "count");
  b.For(Considered(ctx), [&](E i) {
    b.If(ctx.in(1).At({i}), [&] {
      const E at = b.Let(count.Get(), "at");
      if (HasAxis(ctx)) {
        const int axis = NormalAxis(ctx.node().Int("axis", 0), x.rank());
        b.ParallelForAll(Erased(DimsOf(x), axis), [&](std::span<const E> others) {
          b.Store(y, Inserted(others, axis, at), x.At(Inserted(others, axis, i)));
        });
      } else {
        b.Store(y, {at}, x.At(Unflatten(b, i, DimsOf(x))));
      }
      count.Set(at + b.I(1));
    });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& CompressOp() {
  static const OpDef op = {.name = "Compress",
                           .summary = "keeps the slices (or elements) whose condition is true",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .attributes = {{"axis", AttributeSpec::kInt}},
                           .infer = InferCompress,
                           .lower = LowerCompress,
                           .lower_sizes = LowerSizesOfCompress};
  return op;
}

}  // namespace quench::ops
