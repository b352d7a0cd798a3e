#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferIdentity(InferContext& c) {
  c.SetOutput(0, c.input(0));
  if (const auto elements = c.elements(0)) c.SetElements(0, *elements);
  return absl::OkStatus();
}

}  // namespace

const OpDef& IdentityOp() {
  static const OpDef op = {
      .name = "Identity",
      .summary = "the input itself",
      .kind = OpKind::kView,
      .quant = QuantRole::kPassThrough,
      .infer = InferIdentity,
  };
  return op;
}

}  // namespace quench::ops
