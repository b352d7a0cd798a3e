#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferNeg(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(InferElementwise(c, kFloatTypes | kSignedTypes));
  if (std::optional<std::vector<Dim>> dims = c.elements(0); dims && c.input(0).rank() <= 1) {
    for (Dim& dim : *dims) dim = c.symbols().Sub(0, dim);
    c.SetElements(0, std::move(*dims));
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& NegOp() {
  static const OpDef op = {
      .name = "Neg",
      .summary = "-x",
      .kind = OpKind::kPointwise,
      .quant = QuantRole::kCompute,
      .infer = InferNeg,
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return -x[0];
      },
  };
  return op;
}

}  // namespace quench::ops
