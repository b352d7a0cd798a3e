#include "common/ops/nest.h"

namespace quench::ops {
namespace {

bool IsZero(const Tensor* ratio) {
  return ratio != nullptr && ratio->size() == 1 && ratio->FloatAt(0) == 0;
}

absl::Status TrainingError(const OpContext& ctx) {
  return ctx.UnsupportedError("training_mode is true, Quench compiles inference");
}

// Inference only: nothing is dropped. Training would need a random mask, unless the ratio is 0.
absl::Status CheckInference(const OpContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 1, kFloatTypes));
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 2, kBoolType));
  const Tensor* training = ctx.constant(2);
  const bool trains = training != nullptr && training->size() == 1 && training->IntAt(0) != 0;
  if (!trains || IsZero(ctx.constant(1))) return absl::OkStatus();
  return TrainingError(ctx);
}

// Where the caller of a run decides whether to train, that run is refused.
void EnsureInference(LowerContext& ctx) {
  if (!ctx.has_input(2) || ctx.constant(2) != nullptr || IsZero(ctx.constant(1))) return;
  Builder& b = ctx.b();
  const auto only = [&](B buffer) {
    return buffer.At(std::vector<E>(static_cast<size_t>(buffer.rank()), b.I(0)));
  };
  E allowed = !only(ctx.in(2));
  if (ctx.has_input(1)) {
    const E ratio = only(ctx.in(1));
    allowed = allowed || ratio == ConstantLike(ratio, 0);
  }
  b.Check(allowed, MessageOf(TrainingError(ctx)));
}

absl::Status InferDropout(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(CheckInference(ctx));
  ctx.SetOutput(0, ctx.input(0).dtype, ctx.input(0).dims);
  ctx.SetOutput(1, DataType::kBool, ctx.input(0).dims);
  return absl::OkStatus();
}

absl::Status LowerDropout(LowerContext& ctx) {
  Builder& b = ctx.b();
  EnsureInference(ctx);
  if (ctx.has_output(0)) CopyAll(b, ctx.in(0), ctx.out(0));
  if (ctx.has_output(1)) {
    b.ParallelForAll(DimsOf(ctx.out(1)),
                     [&](std::span<const E> i) { b.Store(ctx.out(1), i, b.Bool(true)); });
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& DropoutOp() {
  // `seed` matters in training only, which is refused.
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
