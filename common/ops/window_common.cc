#include "common/ops/window_common.h"

#include <numbers>

namespace quench::ops {

absl::Status InferWindow(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kIndexTypes));
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 0, 1));
  const int64_t number = ctx.node().Int("output_datatype", 1);
  const auto type = static_cast<DataType>(number);
  if (number < 1 || number >= kDataTypeCount || !Contains(kNumericTypes, type)) {
    return ctx.Error(fmt::format("output_datatype is {}, windows are numbers", number));
  }
  const auto size = ctx.elements(0);
  const bool known = size && size->size() == 1;
  if (known && size->front().is_static() && size->front().value() < 0)
    return ctx.Error(fmt::format("size is {}", size->front().value()));
  ctx.SetOutput(0, type, {known ? size->front() : ctx.RuntimeDim(0, std::nullopt)});
  return absl::OkStatus();
}

absl::Status LowerWindowSizes(LowerContext& ctx) {
  SetRuntimeDim(ctx, ctx.output(0).dims[0], Element(ctx, 0, 0));
  return absl::OkStatus();
}

absl::Status LowerWindow(LowerContext& ctx, double a0, double a1, double a2) {
  Builder& b = ctx.b();
  const B y = ctx.out(0);
  const bool periodic = ctx.node().Int("periodic", 1) != 0;
  const E count = Max(periodic ? y.dim(0) : y.dim(0) - b.I(1),
                      b.I(1));  // a symmetric window of one is [a0 - a1 + a2]
  b.ParallelFor(y.dim(0), [&](E i) {
    const E turn = b.Let(
        Cast(i, DataType::kF64) * (2 * std::numbers::pi) / Cast(count, DataType::kF64), "turn");
    E value = b.F(a0, DataType::kF64) - Unary(UnaryOp::kCos, turn) * a1;
    if (a2 != 0) value = value + Unary(UnaryOp::kCos, turn * 2.0) * a2;
    b.Store(y, {i}, Cast(value, loops::ComputeType(y.dtype())));
  });
  return absl::OkStatus();
}

OpDef WindowDef(const std::string& name, const std::string& summary,
                absl::Status (*lower)(LowerContext&)) {
  return {
      .name = name,
      .summary = summary,
      .attributes = {{"output_datatype", AttributeSpec::kInt}, {"periodic", AttributeSpec::kInt}},
      .infer = InferWindow,
      .lower = lower,
      .lower_sizes = LowerWindowSizes};
}

}  // namespace quench::ops
