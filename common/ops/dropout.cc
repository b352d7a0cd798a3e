#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Inference only: nothing is dropped. Training would need a random mask, unless the ratio is 0.
absl::Status CheckInference(const OpContext& ctx) {
  if (!ctx.has_input(2)) return absl::OkStatus();
  const Tensor* training = ctx.constant(2);
  if (training != nullptr && training->IntAt(0) == 0) return absl::OkStatus();
  const Tensor* ratio = ctx.constant(1);
  if (ratio != nullptr && ratio->FloatAt(0) == 0) return absl::OkStatus();
  return ctx.UnsupportedError(
      "training_mode must be a constant that is false, Quench compiles inference");
}

absl::Status InferDropout(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(CheckInference(ctx));
  ctx.SetOutput(0, ctx.input(0).dtype, ctx.input(0).dims);
  ctx.SetOutput(1, DataType::kBool, ctx.input(0).dims);
  return absl::OkStatus();
}

absl::Status LowerDropout(LowerContext& ctx) {
  Builder& b = ctx.b();
  if (ctx.has_output(0)) CopyAll(b, ctx.in(0), ctx.out(0));
  if (ctx.has_output(1)) {
    b.ParallelForAll(DimsOf(ctx.out(1)),
                     [&](std::span<const E> i) { b.Store(ctx.out(1), i, b.Bool(true)); });
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& DropoutOp() {
  // `seed` matters in training only, which `infer` refuses.
  static const OpDef op = {.name = "Dropout",
                           .summary = "the input itself (inference); the mask is all true",
                           .min_inputs = 1,
                           .max_inputs = 3,
                           .max_outputs = 2,
                           .attributes = {{"seed", AttributeSpec::kInt}},
                           .quant = QuantRole::kPassThrough,
                           .infer = InferDropout,
                           .lower = LowerDropout};
  return op;
}

}  // namespace quench::ops
