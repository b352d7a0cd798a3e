#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferEyeLike(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireRank(ctx, 0, 2, 2));
  const int64_t number = ctx.node().Int("dtype", static_cast<int64_t>(ctx.input(0).dtype));
  const auto type = static_cast<DataType>(number);
  if (number < 1 || number >= kDataTypeCount || !Contains(kNumericTypes | kBoolType, type)) {
    return ctx.Error(fmt::format("dtype is {}, EyeLike gives numbers and bool", number));
  }
  ctx.SetOutput(0, type, ctx.input(0).dims);
  return absl::OkStatus();
}

absl::Status LowerEyeLike(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B y = ctx.out(0);
  const E k = b.I(ctx.node().Int("k", 0));
  b.ParallelForAll(DimsOf(y), [&](std::span<const E> i) {
    b.Store(y, i, Cast(i[1] - i[0] == k, loops::ComputeType(y.dtype())));
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& EyeLikeOp() {
  static const OpDef op = {
      .name = "EyeLike",
      .summary = "1 on the k-th diagonal, else 0",
      .attributes = {{"dtype", AttributeSpec::kInt}, {"k", AttributeSpec::kInt}},
      .infer = InferEyeLike,
      .lower = LowerEyeLike};
  return op;
}

}  // namespace quench::ops
