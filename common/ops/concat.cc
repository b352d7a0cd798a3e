#include "common/base/status.h"
#include "common/ops/catalogue.h"
#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status CheckOperand(const InferContext& ctx, int i, int axis) {
  const Type& first = ctx.input(0);
  const Type& x = ctx.input(i);
  if (x.dtype != first.dtype) {
    return ctx.Error(fmt::format("input {} is {}, input 0 is {}", i, DataTypeName(x.dtype),
                                 DataTypeName(first.dtype)));
  }
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, i, first.rank(), first.rank()));
  for (int a = 0; a < first.rank(); ++a) {
    if (a == axis) continue;
    const auto at = static_cast<size_t>(a);
    QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, first.dims[at], x.dims[at],
                                        fmt::format("axis {} of inputs 0 and {}", a, i)));
  }
  return absl::OkStatus();
}

void PropagateConcatElements(InferContext& ctx) {
  std::vector<Dim> all;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    const auto elements = ctx.elements(i);
    if (!elements) return;
    all.insert(all.end(), elements->begin(), elements->end());
  }
  ctx.SetElements(0, std::move(all));
}

absl::Status InferConcat(InferContext& ctx) {
  const Type& first = ctx.input(0);
  if (first.rank() == 0) return ctx.Error("input 0 is a scalar, Concat takes rank 1 and more");
  QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(ctx.node().Int("axis", 0), first.rank()));
  std::vector<Dim> dims = first.dims;
  const auto at = static_cast<size_t>(axis);
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    if (!ctx.has_input(i))
      return ctx.Error(fmt::format("input {} is omitted, Concat needs all", i));
    QUENCH_RETURN_IF_ERROR(CheckOperand(ctx, i, axis));
    dims[at] = ctx.symbols().Add(dims[at], ctx.input(i).dims[at]);
    for (size_t a = 0; a < dims.size(); ++a) {  // a fixed size tells more than a symbol
      if (a != at && !dims[a].is_static() && ctx.input(i).dims[a].is_static())
        dims[a] = ctx.input(i).dims[a];
    }
  }
  ctx.SetOutput(0, first.dtype, std::move(dims));
  if (first.rank() == 1) PropagateConcatElements(ctx);
  return absl::OkStatus();
}

absl::Status LowerConcat(LowerContext& ctx) {
  const int axis = NormalAxis(ctx.node().Int("axis", 0), ctx.output(0).rank());
  Builder& b = ctx.b();
  const B y = ctx.out(0);
  std::vector<Dim> before;  // sizes along the axis of the inputs already copied
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    const B x = ctx.in(i);
    const E start = ExtentSum(ctx, before);
    for (int a = 0; a < x.rank(); ++a) {
      const auto at = static_cast<size_t>(a);
      if (a != axis)
        EnsureEqual(ctx, ctx.input(i).dims[at], ctx.output(0).dims[at],
                    fmt::format("sizes of axis {} of the inputs", a));
    }
    b.ParallelForAll(DimsOf(x), [&](std::span<const E> at) {
      const E position =
          i == 0 ? at[static_cast<size_t>(axis)] : at[static_cast<size_t>(axis)] + start;
      b.Store(y, Replaced(at, axis, position), x.At(at));
    });
    before.push_back(ctx.input(i).dims[static_cast<size_t>(axis)]);
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& ConcatOp() {
  static const OpDef op = {.name = "Concat",
                           .summary = "joins tensors along one axis",
                           .min_inputs = 1,
                           .max_inputs = -1,
                           .attributes = {{"axis", AttributeSpec::kInt, true}},
                           .quant = QuantRole::kPassThrough,
                           .axes = AxisRole::kAxis,
                           .infer = InferConcat,
                           .lower = LowerConcat};
  return op;
}

}  // namespace quench::ops
