#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferOneHot(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 1, 0, 1));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 2, 1, 1));
  QUENCH_RETURN_IF_ERROR(RequireEqual(ctx, ctx.input(2).dims[0], 2, "number of values and 2"));
  const Type& indices = ctx.input(0);
  QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(ctx.node().Int("axis", -1), indices.rank() + 1));
  std::optional<Dim> depth;
  if (const auto known = ctx.elements(1); known && known->size() == 1) {
    depth = known->front();
  } else if (const Tensor* constant = ctx.constant(1);
             constant != nullptr && constant->size() == 1) {
    depth = static_cast<int64_t>(constant->FloatAt(0));
  }
  if (depth && depth->is_static() && depth->value() < 0)
    return ctx.Error(fmt::format("depth is {}", depth->value()));
  std::vector<Dim> dims = indices.dims;
  dims.insert(dims.begin() + axis, depth ? *depth : ctx.RuntimeDim(0, std::nullopt));
  ctx.SetOutput(0, ctx.input(2).dtype, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerSizesOfOneHot(LowerContext& ctx) {
  const int axis = NormalAxis(ctx.node().Int("axis", -1), ctx.input(0).rank() + 1);
  SetRuntimeDim(ctx, ctx.output(0).dims[static_cast<size_t>(axis)], Element(ctx, 1, 0));
  return absl::OkStatus();
}

// An index outside [-depth, depth) gives a row of off values.
absl::Status LowerOneHot(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B y = ctx.out(0);
  const int axis = NormalAxis(ctx.node().Int("axis", -1), y.rank());
  const E depth = y.dim(axis);
  const E off = b.Let(ctx.in(2).At({b.I(0)}), "off");
  const E on = b.Let(ctx.in(2).At({b.I(1)}), "on");
  b.ParallelForAll(DimsOf(y), [&](std::span<const E> i) {
    const E raw = Cast(ctx.in(0).At(Erased(i, axis)), DataType::kI64);
    const E index = Select(raw < b.I(0), raw + depth, raw);
    b.Store(y, i, Select(index == i[static_cast<size_t>(axis)], on, off));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& OneHotOp() {
  static const OpDef op = {.name = "OneHot",
                           .summary = "an axis that is on at the index and off elsewhere",
                           .min_inputs = 3,
                           .max_inputs = 3,
                           .attributes = {{"axis", AttributeSpec::kInt}},
                           .infer = InferOneHot,
                           .lower = LowerOneHot,
                           .lower_sizes = LowerSizesOfOneHot};
  return op;
}

}  // namespace quench::ops
