#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferClip(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c));
  for (const int i : {1, 2}) {
    if (!c.has_input(i)) continue;
    for (const Dim dim : c.input(i).dims) {
      QUENCH_RETURN_IF_ERROR(RequireEqual(c, dim, 1, fmt::format("input {}: its dims and 1", i)));
    }
    QUENCH_RETURN_IF_ERROR(RequireRank(c, i, 0, c.input(0).rank()));
  }
  c.SetOutput(0, c.input(0));
  return absl::OkStatus();
}

// As numpy.minimum(max, numpy.maximum(x, min)): max wins where min > max.
absl::StatusOr<E> ClipElement(const OpContext&, loops::Builder&, std::span<const E> x) {
  E result = x[0];
  if (x.size() > 1 && x[1].valid()) result = Max(result, x[1]);
  if (x.size() > 2 && x[2].valid()) result = Min(result, x[2]);
  return result;
}

}  // namespace

const OpDef& ClipOp() {
  static const OpDef op = {
      .name = "Clip",
      .summary = "x limited to [min, max], each optional",
      .kind = OpKind::kPointwise,
      .max_inputs = 3,
      .quant = QuantRole::kPassThrough,
      .infer = InferClip,
      .scalar = ClipElement,
  };
  return op;
}

}  // namespace quench::ops
