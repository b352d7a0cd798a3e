#include "common/ops/nest.h"

namespace quench::ops {
namespace {

absl::Status InferSize(InferContext& ctx) {
  ctx.SetOutput(0, DataType::kI64, {});
  ctx.SetElements(0, {ctx.symbols().Product(ctx.input(0).dims)});
  return absl::OkStatus();
}

absl::Status LowerSize(LowerContext& ctx) {
  ctx.b().Store(ctx.out(0), {}, ProductOf(ctx.b(), DimsOf(ctx.in(0))));
  return absl::OkStatus();
}

}  // namespace

const OpDef& SizeOp() {
  static const OpDef op = {.name = "Size",
                           .summary = "number of elements as i64",
                           .infer = InferSize,
                           .lower = LowerSize};
  return op;
}

}  // namespace quench::ops
