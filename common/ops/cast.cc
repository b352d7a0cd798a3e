#include "common/ops/helpers.h"
#include "common/ops/integer.h"

namespace quench::ops {
namespace {

absl::Status InferCast(InferContext& c) {
  const int64_t to = c.node().Int("to", 0);
  if (to <= 0 || to >= kDataTypeCount) {
    return c.Error(fmt::format("to is {}, not an element type", to));
  }
  const DataType type = static_cast<DataType>(to);
  c.SetOutput(0, type, c.input(0).dims);
  if (auto dims = c.elements(0); dims && (IsInteger(type) || type == c.input(0).dtype)) {
    if (DataTypeBits(type) >= 32) c.SetElements(0, std::move(*dims));
  }
  return absl::OkStatus();
}

absl::StatusOr<E> CastElement(const OpContext& c, loops::Builder&, std::span<const E> x) {
  const DataType type = c.output(0).dtype;
  if (Contains(kFloat8Types, type)) return ToFloat8(x[0], type, c.node().Int("saturate", 1) != 0);
  return x[0].type() == type ? x[0] : Cast(x[0], loops::ComputeType(type));
}

}  // namespace

const OpDef& CastOp() {
  static const OpDef op = {
      .name = "Cast",
      .summary =
          "x in another element type; floats to integers truncate and saturate, to f8 they "
          "saturate",
      .kind = OpKind::kPointwise,
      .attributes = {{"to", AttributeSpec::kInt, true},
                     {"saturate", AttributeSpec::kInt},
                     {"round_mode", AttributeSpec::kString}},
      .infer = InferCast,
      .scalar = CastElement,
  };
  return op;
}

}  // namespace quench::ops
