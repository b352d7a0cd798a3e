#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferNot(InferContext& c) {
  QUENCH_RETURN_IF_ERROR(InferElementwise(c, kBoolType));
  if (std::optional<std::vector<int64_t>> known = c.ints(0); known && c.input(0).rank() <= 1) {
    std::vector<Dim> inverted;
    for (const int64_t value : *known) inverted.emplace_back(value == 0 ? 1 : 0);
    c.SetElements(0, std::move(inverted));
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& NotOp() {
  static const OpDef op = {
      .name = "Not",
      .summary = "logical not",
      .kind = OpKind::kPointwise,
      .infer = InferNot,
      .scalar = [](const OpContext&, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return !x[0];
      },
  };
  return op;
}

}  // namespace quench::ops
