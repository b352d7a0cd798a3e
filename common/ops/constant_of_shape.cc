#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::StatusOr<Tensor> FillOf(const OpContext& ctx) {
  const Attribute* value = ctx.node().Find("value");
  if (value == nullptr) return Tensor::ScalarF32(0);
  const Tensor& fill = std::get<Tensor>(*value);
  if (fill.size() != 1)
    return ctx.Error(fmt::format("value has {} elements, ConstantOfShape takes one", fill.size()));
  return fill;
}

absl::Status InferConstantOfShape(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, TypeSet({DataType::kI64})));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 1, 1));
  QUENCH_ASSIGN_OR_RETURN(const Tensor fill, FillOf(ctx));
  std::vector<Dim> dims;
  if (const auto shape = ctx.elements(0)) {
    dims = *shape;
  } else {
    QUENCH_ASSIGN_OR_RETURN(const int rank, RankFromLength(ctx, 0));
    for (int axis = 0; axis < rank; ++axis) dims.push_back(ctx.RuntimeDim(axis, std::nullopt));
  }
  for (Dim dim : dims) {
    if (dim.is_static() && dim.value() < 0)
      return ctx.Error(fmt::format("shape has {}, sizes are at least 0", dim.value()));
  }
  ctx.SetOutput(0, fill.dtype(), dims);
  const bool small =
      dims.empty() || (dims.size() == 1 && dims[0].is_static() && dims[0].value() <= 1024);
  if (small && IsInteger(fill.dtype())) {
    ctx.SetElements(0, std::vector<Dim>(dims.empty() ? 1 : static_cast<size_t>(dims[0].value()),
                                        fill.IntAt(0)));
  }
  return absl::OkStatus();
}

absl::Status LowerSizesOfConstantOfShape(LowerContext& ctx) {
  for (int axis = 0; axis < ctx.output(0).rank(); ++axis) {
    SetRuntimeDim(ctx, ctx.output(0).dims[static_cast<size_t>(axis)], Element(ctx, 0, axis));
  }
  return absl::OkStatus();
}

absl::Status LowerConstantOfShape(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const Tensor fill, FillOf(ctx));
  Builder& b = ctx.b();
  const DataType type = loops::ComputeType(fill.dtype());
  const E value = IsFloat(type) ? b.F(fill.FloatAt(0), type) : b.Int(fill.IntAt(0), type);
  b.ParallelForAll(DimsOf(ctx.out(0)),
                   [&](std::span<const E> i) { b.Store(ctx.out(0), i, value); });
  return absl::OkStatus();
}

}  // namespace

const OpDef& ConstantOfShapeOp() {
  static const OpDef op = {.name = "ConstantOfShape",
                           .summary = "a tensor of one repeated value",
                           .attributes = {{"value", AttributeSpec::kTensor}},
                           .infer = InferConstantOfShape,
                           .lower = LowerConstantOfShape,
                           .lower_sizes = LowerSizesOfConstantOfShape};
  return op;
}

}  // namespace quench::ops
