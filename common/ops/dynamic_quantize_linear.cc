#include "common/ops/integer.h"

namespace quench::ops {
namespace {

absl::Status InferDynamicQuantizeLinear(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, TypeSet({DataType::kF32})));
  c.SetOutput(0, DataType::kU8, c.input(0).dims);
  c.SetOutput(1, DataType::kF32, {});
  c.SetOutput(2, DataType::kU8, {});
  return absl::OkStatus();
}

// The range of x, widened to hold 0, onto [0, 255]. An x of nothing but zeros has scale 1.
absl::Status LowerDynamicQuantizeLinear(LowerContext& c) {
  loops::Builder& b = c.b();
  const std::vector<E> dims = c.Extents(c.input(0).dims);
  auto load = [&](std::span<const E> index) { return c.in(0).At(index); };
  const E nought = b.F(0, DataType::kF32);
  const E high = b.Let(b.ReduceAll(BinaryOp::kMax, nought, dims, load), "high");
  const E low = b.Let(b.ReduceAll(BinaryOp::kMin, nought, dims, load), "low");
  const E scale = b.Let(Select(high == low, b.F(1, DataType::kF32), (high - low) / 255.0), "scale");
  const E zero = b.Let(RoundToInteger(-low / scale, E(), DataType::kU8), "zero");
  b.ParallelForAll(dims, [&](std::span<const E> index) {
    b.Store(c.out(0), index, RoundToInteger(load(index) / scale, zero, DataType::kU8));
  });
  b.Store(c.out(1), {}, scale);
  b.Store(c.out(2), {}, zero);
  return absl::OkStatus();
}

}  // namespace

const OpDef& DynamicQuantizeLinearOp() {
  static const OpDef op = {
      .name = "DynamicQuantizeLinear",
      .summary = "f32 to u8 with scale and zero point from the range of the input",
      .min_outputs = 3,
      .max_outputs = 3,
      .infer = InferDynamicQuantizeLinear,
      .lower = LowerDynamicQuantizeLinear,
  };
  return op;
}

}  // namespace quench::ops
