#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferNonZero(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kPlainTypes));
  const Type& x = ctx.input(0);
  ctx.SetOutput(0, DataType::kI64, {x.rank(), ctx.RuntimeDim(0, ctx.symbols().Product(x.dims))});
  return absl::OkStatus();
}

E IsNonZero(Builder& b, E value) {
  return value.type() == DataType::kBool ? value : value != b.F(0, value.type());
}

absl::Status LowerSizesOfNonZero(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const E count = b.ReduceAll(BinaryOp::kAdd, b.I(0), DimsOf(x), [&](std::span<const E> i) {
    return Cast(IsNonZero(b, x.At(i)), DataType::kI64);
  });
  SetRuntimeDim(ctx, ctx.output(0).dims[1], count);
  return absl::OkStatus();
}

absl::Status LowerNonZero(LowerContext& ctx) {
  Builder& b = ctx.b();
  const B x = ctx.in(0);
  const auto count = b.Local(b.I(0), "count");
  SerialForAll(b, DimsOf(x), [&](std::span<const E> i) {
    b.If(IsNonZero(b, x.At(i)), [&] {
      const E at = b.Let(count.Get(), "at");
      for (size_t axis = 0; axis < i.size(); ++axis) {
        b.Store(ctx.out(0), {b.I(static_cast<int64_t>(axis)), at}, i[axis]);
      }
      count.Set(at + b.I(1));
    });
  });
  return absl::OkStatus();
}

}  // namespace

const OpDef& NonZeroOp() {
  static const OpDef op = {.name = "NonZero",
                           .summary = "indices of the elements that are not 0, one column each",
                           .infer = InferNonZero,
                           .lower = LowerNonZero,
                           .lower_sizes = LowerSizesOfNonZero};
  return op;
}

}  // namespace quench::ops
