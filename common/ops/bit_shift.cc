#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

absl::Status InferBitShift(InferContext& c) {
  const std::string direction = c.node().String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    return c.Error(fmt::format("direction is `{}`, BitShift takes LEFT or RIGHT", direction));
  }
  return InferElementwise(c, kUnsignedTypes);
}

}  // namespace

const OpDef& BitShiftOp() {
  static const OpDef op = {
      .name = "BitShift",
      .summary = "bits shifted by `direction` LEFT or RIGHT, broadcast",
      .kind = OpKind::kPointwise,
      .min_inputs = 2,
      .max_inputs = 2,
      .attributes = {{"direction", AttributeSpec::kString, true}},
      .infer = InferBitShift,
      .scalar = [](const OpContext& c, loops::Builder&, std::span<const E> x) -> absl::StatusOr<E> {
        return Binary(c.node().String("direction", "") == "LEFT" ? BinaryOp::kShl : BinaryOp::kShr,
                      x[0], x[1]);
      },
  };
  return op;
}

}  // namespace quench::ops
